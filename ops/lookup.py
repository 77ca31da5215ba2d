"""The three kinds of lookup: in training tables, in a served version, with stock ops only.

One op serves all features of all tables. F features, T tables, N keys, B samples, D weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from hotrow.ops import library
from hotrow.ops.collective_order import collective
from hotrow.ops.features import FlatFeature
from hotrow.ops.table_arguments import combiner_number
from hotrow.spec import FeatureConfig, TableConfig

DEFAULT_ROWS = "hotrow_default_rows"
"""Keys that got default rows since the store could not be read."""
STALE_ROWS = "hotrow_stale_rows"
"""Keys that got rows which may be old, since the store cannot be followed."""
SAMPLE_COUNTS = {DEFAULT_ROWS, STALE_ROWS}
"""What a lookup counts for each sample, beside its values."""


@dataclass(frozen=True)
class LookupLayout:
    """The tables and features of a fused lookup, in the order of the op."""

    tables: tuple[TableConfig, ...]
    features: tuple[FeatureConfig, ...]

    def op_attributes(self, table_names: Sequence[str]) -> dict[str, Any]:
        """Returns the attributes that every lookup op takes."""
        position = {table.name: i for i, table in enumerate(self.tables)}
        return {
            "tables": list(table_names),
            "features": [f.name for f in self.features],
            "table_of": [position[f.table.name] for f in self.features],
            "combiners": [combiner_number(f.resolved_combiner) for f in self.features],
            "widths": [table.embedding_dim for table in self.tables],
        }


def _op_inputs(flat: Sequence[FlatFeature]) -> dict[str, list[tf.Tensor]]:
    return {
        "keys": [f.keys for f in flat],
        "row_splits": [f.row_splits for f in flat],
        "weights": [f.weights for f in flat],
    }


class Lookup(Protocol):
    """Looks up the rows of all features."""

    def sample_counts(self) -> dict[str, tf.Tensor]:
        """Returns the counts of each sample: int32 [B], by the names of SAMPLE_COUNTS."""

    def __call__(self, layout: LookupLayout, flat: Sequence[FlatFeature]) -> list[tf.Tensor]:
        """Returns pooled values, float32 [B, D] (or [N, D] without combiner) a feature."""


class StoreLookup:
    """Rows of an exported version, from the store that the server or the manifest names.

    Args:
        manifest: scalar string tensor, the path of assets/hotrow_manifest.json.
    """

    def __init__(self, manifest: tf.Tensor) -> None:
        self._manifest = manifest
        self._counts: dict[str, list[tf.Tensor]] = {DEFAULT_ROWS: [], STALE_ROWS: []}

    def __call__(self, layout: LookupLayout, flat: Sequence[FlatFeature]) -> list[tf.Tensor]:
        """Returns pooled values; see `Lookup`."""
        names = [table.name for table in layout.tables]
        found = library.load().hotrow_serving_lookup(
            manifest=self._manifest, **_op_inputs(flat), **layout.op_attributes(names)
        )
        # Without a pooled feature, no input shows the number of samples.
        if any(feature.resolved_combiner is not None for feature in layout.features):
            self._counts[DEFAULT_ROWS].append(found.defaulted)
            self._counts[STALE_ROWS].append(found.stale)
        pooled: list[tf.Tensor] = found.pooled
        return pooled

    def sample_counts(self) -> dict[str, tf.Tensor]:
        """Returns how many keys read default rows, and how many possibly stale rows: int32 [B].

        The counts are over all lookups of this graph. B is the number of samples of the first
        lookup; further samples of other lookups count for sample 0. Empty if the graph made no
        lookup.
        """
        graph = tf.compat.v1.get_default_graph()
        # Tensors of an inner function graph are not available here.
        here = {
            name: [t for t in counts if t.graph is graph] for name, counts in self._counts.items()
        }
        return {name: _sum_of_samples(counts) for name, counts in here.items() if counts}


def _sum_of_samples(counts: Sequence[tf.Tensor]) -> tf.Tensor:
    samples = tf.shape(counts[0])[0]
    total = counts[0]
    for more in counts[1:]:
        fitting = tf.pad(more, [[0, samples]])[:samples]
        beyond = tf.one_hot(0, samples, tf.reduce_sum(more[samples:]), 0, dtype=tf.int32)
        total += fitting + beyond
    return total


@dataclass(frozen=True)
class StandaloneTable:
    """A table as stock variables: sorted keys int64 [R + 1], rows float32 [R + 1, D].

    The last key is the largest int64: an end mark at which every search stops. The last row is the
    default row. A row of that same key is found first, because it lies before the end mark.
    """

    keys: tf.Variable
    rows: tf.Variable


class StandaloneLookup:
    """Rows of an exported version with stock TensorFlow ops only.

    Sums are taken in TensorFlow's order, so pooled values may differ from training's in the
    last bit.
    """

    def __init__(self, tables: Mapping[str, StandaloneTable]) -> None:
        self._tables = tables

    def __call__(self, layout: LookupLayout, flat: Sequence[FlatFeature]) -> list[tf.Tensor]:
        """Returns pooled values; see `Lookup`."""
        return [
            _pool(self._rows(config.table.name, f.keys), f, config.resolved_combiner)
            for config, f in zip(layout.features, flat, strict=True)
        ]

    def sample_counts(self) -> dict[str, tf.Tensor]:
        """Returns no counts: every row is available."""
        return {}

    def _rows(self, table: str, keys: tf.Tensor) -> tf.Tensor:
        stored = self._tables[table]
        # Does not copy the keys: a copy takes time in proportion to the table's size.
        place = tf.searchsorted(stored.keys, keys, out_type=tf.int64)
        known = tf.equal(tf.gather(stored.keys, place), keys)
        count = tf.shape(stored.keys, tf.int64)[0] - 1
        return tf.gather(stored.rows, tf.where(known, place, count))


def _pool(rows: tf.Tensor, flat: FlatFeature, combiner: str | None) -> tf.Tensor:
    """Pools rows [N, D] with the semantics of the native core (pooling.h)."""
    weighted = flat.weights.shape[0] != 0
    if combiner is None:
        return rows
    if flat.row_splits.shape[0] == 0:
        samples = tf.shape(flat.keys, tf.int64)[0]
        ids = tf.range(samples)
    else:
        samples = tf.shape(flat.row_splits, tf.int64)[0] - 1
        ids = tf.ragged.row_splits_to_segment_ids(flat.row_splits, out_type=tf.int64)
    weights = flat.weights if weighted else tf.ones_like(rows[:, 0])
    if weighted:
        rows = rows * weights[:, tf.newaxis]
    total = tf.math.unsorted_segment_sum(rows, ids, samples)
    if combiner == "sum":
        return total
    if combiner == "mean":
        divisor = tf.math.unsorted_segment_sum(weights, ids, samples)
    else:
        divisor = tf.sqrt(tf.math.unsorted_segment_sum(weights * weights, ids, samples))
    return tf.math.divide_no_nan(total, divisor[:, tf.newaxis])


class TrainingLookup:
    """Rows of training tables; the lookup's gradient updates the tables.

    Args:
        handles: the tables' names in the native registry, in the order of the layout.
        device: TensorFlow's name of the device on which the tables' ops run.
        anchor: float32 [SLOTS]. The gradient is computed only when a tape watches it.
        learning_rates: float32 [T] of the step, if the backward pass applies the optimizer.
        insert: count occurrences, and insert the initial rows of admitted keys.
        update_in_backward: apply the optimizer in the backward pass.
        global_clipnorm: largest norm of all gradients of the step; None: no bound.
        collective: the tables are split over ranks, which look up together.
    """

    def __init__(
        self,
        handles: Sequence[str],
        device: str,
        anchor: tf.Tensor,
        learning_rates: tf.Tensor,
        *,
        insert: bool,
        update_in_backward: bool,
        global_clipnorm: float | None,
        collective: bool = False,
    ) -> None:
        self._handles = handles
        self._device = device
        self._collective = collective
        self._inputs = {"anchor": anchor, "learning_rates": learning_rates}
        self._attributes = {
            "insert": insert,
            "update_in_backward": update_in_backward,
            "global_clipnorm": global_clipnorm or 0.0,
            "collective": collective,
        }

    def __call__(self, layout: LookupLayout, flat: Sequence[FlatFeature]) -> list[tf.Tensor]:
        """Returns pooled values; see `Lookup`."""
        with tf.device(self._device), collective(self._collective):
            found = library.load().hotrow_lookup(
                **self._inputs,
                **self._attributes,
                **_op_inputs(flat),
                **layout.op_attributes(self._handles),
            )
        pooled: list[tf.Tensor] = found.pooled
        return pooled

    def sample_counts(self) -> dict[str, tf.Tensor]:
        """Returns no counts: every row is available."""
        return {}


def refuse_gradient(anchor: tf.Tensor) -> tf.Tensor:
    """Returns the anchor for a lookup that is called without `training`; it has no gradient.

    Keras passes no `training` below a model whose `call` does not take it, in `fit` either. A
    gradient of the result raises LookupError. It is an op, not a custom gradient: SavedModels trace
    those.
    """
    return tf.raw_ops.PreventGradient(
        input=anchor,
        message="DistributedEmbedding: a gradient is taken of a call without `training`; give the "
        "`call` of your model an argument `training` and pass it on, or pass training=False for "
        "rows that must not learn",
    )


_BACKWARD_ATTRIBUTES = (
    "tables",
    "features",
    "table_of",
    "combiners",
    "widths",
    "update_in_backward",
    "global_clipnorm",
    "collective",
)


@tf.RegisterGradient("HotrowLookup")  # type: ignore[untyped-decorator]
def _lookup_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.Tensor | None]:
    """Sends the gradients of all features to their tables; the anchor gets a commit token.

    The last output of the op is the ticket of the lookup, for the backward pass. A lookup that does
    not insert has the gradient 0: its backward pass would insert rows.
    """
    if not op.get_attr("insert"):
        return [tf.zeros_like(op.inputs[0]), *([None] * (len(op.inputs) - 1))]
    pooled = gradients[:-1]
    count = len(pooled)
    _, learning_rates, *features = op.inputs
    # Set here, because gradients are computed outside any device scope.
    with tf.device(op.outputs[0].device), collective(op.get_attr("collective")):
        commit_token = library.load().hotrow_backward(
            keys=features[:count],
            row_splits=features[count : 2 * count],
            weights=features[2 * count :],
            gradients=[tf.cast(g, tf.float32) for g in pooled],
            learning_rates=learning_rates,
            ticket=op.outputs[-1],
            **{name: op.get_attr(name) for name in _BACKWARD_ATTRIBUTES},
        )
    return [commit_token, None, *([None] * (3 * count))]
