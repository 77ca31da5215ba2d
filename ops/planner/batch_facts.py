"""Measures one table in one global batch: the messages that its ranks would exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hotrow.ops.planner.facts import BY_RANK, Floats
from hotrow.ops.planner.owners import owners_of

Ints = npt.NDArray[np.int64]

KEY_BYTES, COUNT_BYTES, LARGE_COUNT_BYTES, SPLIT_BYTES, WEIGHT_BYTES = 8, 1, 4, 8, 4
LARGE_COUNT = 255
"""From here on, how often a key appears takes `LARGE_COUNT_BYTES` more."""


class FeatureKeys(Protocol):
    """The keys of a feature in a global batch, in the form of `hotrow.trainer.data.Keys`."""

    @property
    def keys(self) -> Ints:
        """int64 [K]."""

    @property
    def row_splits(self) -> Ints | None:
        """int64 [B + 1]; None: one key a sample."""

    @property
    def weights(self) -> npt.NDArray[np.float32] | None:
        """float32 [K]; None: all are 1."""


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """The lookups of a table in one batch; see `TableFacts`.

    Attributes:
        by_rank: the values of `BY_RANK`, float64 [N].
        distinct: distinct keys of the batch, int64 [V].
        hottest: the hottest key's share of the lookups.
    """

    by_rank: dict[str, Floats]
    distinct: Ints
    hottest: float


def measure_batch(
    columns: Sequence[FeatureKeys], pooled: Sequence[bool], size: int, ranks: int, hashed: bool
) -> BatchFacts:
    """Returns the measured lookups of a table.

    Args:
        columns: the keys of each of its features.
        pooled: whether each feature has a combiner.
        size: B.
        ranks: N.
        hashed: owners are those of mixed keys.
    """
    facts = {name: np.zeros(ranks) for name in BY_RANK}
    # [r, o]: keys of slice r that rank o owns.
    counts_to, bytes_to = (np.zeros((ranks, ranks), np.int64) for _ in range(2))
    slices = []
    for rank in range(ranks):
        first, last = rank * size // ranks, (rank + 1) * size // ranks
        pieces = []
        for column, combined in zip(columns, pooled, strict=True):
            keys, message_bytes = _slice(column, first, last)
            pieces.append(keys)
            facts["outputs"][rank] += last - first if combined else len(keys)
            facts["broadcast_bytes"][rank] += message_bytes
        keys, counts = _distinct(np.concatenate(pieces))
        slices.append((keys, counts))
        facts["lookups"][rank], facts["distinct"][rank] = counts.sum(), len(keys)
        facts["distinct_bytes"][rank] = key_message_bytes(counts, np.zeros(len(keys), int), 1)[0]
        owners = owners_of(keys, ranks, hashed)
        counts_to[rank] = np.bincount(owners, minlength=ranks)
        bytes_to[rank] = key_message_bytes(counts, owners, ranks)
    facts["away"], facts["asked"] = _others(counts_to)
    facts["away_bytes"], facts["asked_bytes"] = _others(bytes_to)
    union, hottest, parts_to = _union(slices, ranks)
    facts["parted"], facts["gathered"] = _others(parts_to)
    facts["part"] = np.diff(_part(np.arange(ranks + 1), len(union), ranks)).astype(np.float64)
    return BatchFacts(facts, union, hottest)


def key_message_bytes(counts: Ints, messages: Ints, size: int) -> Ints:
    """Returns the bytes of messages of distinct keys and their counts, int64 [size].

    A message is `[keys: 8 each | counts: 1 each | counts from 255 on: 4 each]`, padded to 8 bytes.
    It has no counts when each of its keys appears once.

    Args:
        counts: how often each key appears, int64 [U].
        messages: the number of each key's message, int64 [U] in [0, size).
        size: number of messages.
    """
    keys, repeated, large = (
        np.bincount(messages[chosen], minlength=size).astype(np.int64)
        for chosen in (slice(None), counts > 1, counts >= LARGE_COUNT)
    )
    count_bytes = np.where(repeated > 0, COUNT_BYTES * keys + LARGE_COUNT_BYTES * large, 0)
    return (KEY_BYTES * keys + count_bytes + 7) // 8 * 8


def _slice(column: FeatureKeys, first: int, last: int) -> tuple[Ints, int]:
    """Returns the keys of samples [first, last), and the size of a message with all of them."""
    keys, splits = column.keys, column.row_splits
    keys = keys[first:last] if splits is None else keys[splits[first] : splits[last]]
    message_bytes = KEY_BYTES * len(keys)
    if splits is not None:
        message_bytes += SPLIT_BYTES * (last - first + 1)
    if column.weights is not None:
        message_bytes += (WEIGHT_BYTES * len(keys) + 7) // 8 * 8
    return keys, message_bytes


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Returns distinct keys in the order of their first appearance, and how often each appears."""
    distinct, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    return distinct[order], counts[order]


def _others(matrix: Ints) -> tuple[Floats, Floats]:
    """Returns the sums of rows and columns of int64 [N, N] without the diagonal."""
    matrix = matrix.astype(np.float64)
    np.fill_diagonal(matrix, 0)
    return matrix.sum(axis=1), matrix.sum(axis=0)


def _union(slices: Sequence[tuple[Ints, Ints]], ranks: int) -> tuple[Ints, float, Ints]:
    """Returns the keys of all slices, the share of the hottest, and [r, o]: r's keys in part o."""
    keys = np.concatenate([keys for keys, _ in slices])
    union, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    lookups = np.bincount(inverse, np.concatenate([counts for _, counts in slices]), minlength=1)
    hottest = float(lookups.max() / max(lookups.sum(), 1))
    place = np.empty(len(union), np.int64)
    place[np.argsort(first)] = np.arange(len(union))
    ends = _part(np.arange(1, ranks + 1), len(union), ranks)
    parts = np.searchsorted(ends, place[inverse], side="right")
    own = np.repeat(np.arange(ranks), [len(keys) for keys, _ in slices])
    parts_to = np.bincount(own * ranks + parts, minlength=ranks * ranks)
    return union, hottest, parts_to.reshape(ranks, ranks)


def _part(rank: Ints, rows: int, ranks: int) -> Ints:
    """Returns where each rank's part of the union begins; entry N is the end of the union."""
    return rows * rank // ranks
