"""The keys of batches and of samples, by table, for the tables' device tiers.

Batches are inputs of the layer on the host. B samples, N keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops.features import as_keys, flatten
from hotrow.ops.ranks import Ranks
from hotrow.spec import FeatureConfig

Ints: TypeAlias = npt.NDArray[np.int64]
Uint32s: TypeAlias = npt.NDArray[np.uint32]

_MOST = np.iinfo(np.uint32).max
# Distinct keys that wait, over all batches of a table, before they are merged.
_MERGE = 1 << 22


def host_keys(feature: FeatureConfig, inputs: Any) -> Ints:
    """Returns the keys int64 [N] of a feature; int64 ones in host memory are not copied.

    Args:
        feature: the feature that the keys belong to. Masked keys have no row; they are returned
            too.
        inputs: dense [B] or [B, k], ragged or sparse [B, None]; eager tensors or numpy arrays.

    Raises:
        InvalidArgumentError: keys that are not int64, int32, strings or exact integers; a tensor
            without a value.
    """
    name, values = feature.name, inputs
    if isinstance(inputs, tf.RaggedTensor):
        values = inputs.flat_values
    elif isinstance(inputs, tf.SparseTensor):
        values = inputs.values
    if tf.is_tensor(values):
        if not hasattr(values, "numpy"):
            raise InvalidArgumentError(
                f"feature {name!r}: {values} has no value yet; keys to prefetch are eager "
                "tensors or arrays, outside of tf.function"
            )
        # `numpy` copies.
        is_integer = values.dtype in (tf.int64, tf.int32)
        values = memoryview(values) if is_integer else values.numpy()
    try:
        array = np.asarray(values)
    except ValueError as err:
        raise InvalidArgumentError(f"feature {name!r}: keys are no array: {err}") from err
    if array.dtype in (np.int64, np.int32):
        return np.ascontiguousarray(array, np.int64).reshape(-1)
    if array.dtype.kind == "f":
        keys = array.astype(np.int64)
        if np.array_equal(keys, array):
            return keys.reshape(-1)
        raise InvalidArgumentError(
            f"feature {name!r}: keys of type {array.dtype} that are not exact integers"
        )
    if array.dtype.kind in "OSU":
        hashed: Ints = as_keys(feature, tf.convert_to_tensor(array)).numpy().reshape(-1)
        return hashed
    raise InvalidArgumentError(
        f"feature {name!r}: keys of type {array.dtype}; must be int64, int32 or string"
    )


def keys_in_order(
    features: Sequence[FeatureConfig], batches: Iterable[Mapping[str, Any]]
) -> dict[str, Ints]:
    """Returns the keys int64 [N] of each table: those of the first batch, then of the second, ...

    Args:
        features: the features to read.
        batches: inputs by feature.
    """
    pieces: dict[str, list[Ints]] = {feature.table.name: [] for feature in features}
    for batch in batches:
        for feature in features:
            pieces[feature.table.name].append(host_keys(feature, batch[feature.name]))
    return {table: np.concatenate(parts) for table, parts in pieces.items() if parts}


def count_keys(
    features: Sequence[FeatureConfig], batches: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[Ints, Uint32s]]:
    """Returns the distinct keys int64 [N] of each table and how often each appears, uint32 [N].

    Batches are read one by one; only distinct keys stay in memory.
    """
    counts = {feature.table.name: _KeyCounts() for feature in features}
    for batch in batches:
        for feature in features:
            counts[feature.table.name].add(host_keys(feature, batch[feature.name]))
    return {table: counted.result() for table, counted in counts.items()}


def counts_of_all(
    counted: Mapping[str, tuple[Ints, Uint32s]], ranks: Ranks
) -> dict[str, tuple[Ints, Uint32s]]:
    """Returns the counts of `count_keys` over all ranks. A collective, for the same tables."""
    together = {}
    for table, (keys, counts) in counted.items():
        total = _KeyCounts()
        what = f"keys of the warm-up of {table}"
        gathered = zip(ranks.all_gather(keys, what), ranks.all_gather(counts, what), strict=True)
        for their_keys, times in gathered:
            total.add_counted(their_keys.astype(np.int64), times.astype(np.uint32))
        together[table] = total.result()
    return together


def rank_features(
    features: Sequence[FeatureConfig],
    attributes: Mapping[str, Any],
    batch: Mapping[str, Any],
    weights: Mapping[str, Any],
) -> list[tuple[Any, ...]]:
    """Returns the features of a batch as `_native.rank_prefetch` takes them.

    Args:
        features: the layer's features.
        attributes: attributes of the layer's ops, `LookupLayout.op_attributes`.
        batch: inputs by feature.
        weights: weights of the keys, for the features that have them.
    """
    found = []
    for number, feature in enumerate(features):
        flat = flatten(feature, batch[feature.name], weights.get(feature.name))
        keys, splits, given = (t.numpy() for t in (flat.keys, flat.row_splits, flat.weights))
        found.append(
            (
                feature.name,
                keys,
                splits if len(splits) else None,
                given if len(given) else None,
                len(splits) - 1 if len(splits) else len(keys),
                attributes["combiners"][number],
                attributes["table_of"][number],
            )
        )
    return found


class _KeyCounts:
    """Counts keys that arrive in pieces."""

    def __init__(self) -> None:
        self._keys: list[Ints] = []
        self._counts: list[Ints] = []
        self._waiting = 0

    def add(self, keys: Ints) -> None:
        self.add_counted(*np.unique(keys, return_counts=True))

    def add_counted(self, distinct: Ints, counts: npt.NDArray[np.integer[Any]]) -> None:
        self._keys.append(distinct)
        self._counts.append(counts.astype(np.int64))
        self._waiting += len(distinct)
        if self._waiting > _MERGE:
            self._merge()

    def result(self) -> tuple[Ints, Uint32s]:
        self._merge()
        return self._keys[0], np.minimum(self._counts[0], _MOST).astype(np.uint32)

    def _merge(self) -> None:
        none = np.zeros(0, np.int64)
        keys, places = np.unique(np.concatenate([none, *self._keys]), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, places, np.concatenate([none, *self._counts]))
        self._keys, self._counts, self._waiting = [keys], [counts], 0
