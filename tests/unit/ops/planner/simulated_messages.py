"""The messages of a training step, built byte by byte as docs/design/0009-ranks.md says.

Nothing here is shared with the planner: dictionaries and loops, no formulas.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Column:
    """Keys of a feature: see `hotrow.trainer.data.Keys`."""

    keys: np.ndarray
    row_splits: np.ndarray | None = None
    weights: np.ndarray | None = None


class Slice:
    """A rank's samples: of each feature the keys of every sample."""

    def __init__(self, columns, pooled, size, rank, ranks):
        self.rank = rank
        first, last = rank * size // ranks, (rank + 1) * size // ranks
        self.message, self.keys, self.outputs = b"", [], 0
        for column, combined in zip(columns, pooled, strict=True):
            samples, weights = [], []
            for b in range(first, last):
                at = slice(b, b + 1)
                if column.row_splits is not None:
                    at = slice(column.row_splits[b], column.row_splits[b + 1])
                samples.append(column.keys[at].tolist())
                if column.weights is not None:
                    weights += column.weights[at].tolist()
            flat = [key for sample in samples for key in sample]
            self.message += struct.pack(f"{len(flat)}q", *flat)
            if column.row_splits is not None:
                ends = np.cumsum([0, *map(len, samples)])
                self.message += struct.pack(f"{len(ends)}q", *ends)
            if column.weights is not None:
                self.message += padded(struct.pack(f"{len(weights)}f", *weights))
            self.keys += flat
            self.outputs += len(samples) if combined else len(flat)
        self.counts = Counter(self.keys)  # keeps the order of first appearance


def padded(message):
    return message + bytes(-len(message) % 8)


def key_message(counts):
    message = b"".join(struct.pack("q", key) for key in counts)
    if all(count == 1 for count in counts.values()):
        return message
    message += bytes(min(count, 255) for count in counts.values())
    message += b"".join(struct.pack("I", count) for count in counts.values() if count >= 255)
    return padded(message)


def rows(count, dim):
    return np.zeros((count, dim), np.float32).tobytes()


def messages(scheme, columns, pooled, size, ranks, dim, owner=0, owner_of=None):
    """Returns the messages by (stage, from, to), those of a rank to itself left out."""
    slices = [Slice(columns, pooled, size, rank, ranks) for rank in range(ranks)]
    sent = _MESSAGES[scheme](slices, dim, owner, owner_of or (lambda key: key % ranks))
    return {(stage, a, b): message for (stage, a, b), message in sent.items() if a != b}


def totals(sent, ranks):
    """Returns bytes sent and received, both [4, N], of the stages by their order."""
    stages = ("keys", "rows", "gradients", "sums")
    out, into = np.zeros((4, ranks)), np.zeros((4, ranks))
    for (stage, a, b), message in sent.items():
        out[stages.index(stage), a] += len(message)
        into[stages.index(stage), b] += len(message)
    return out, into


def _owned(slices, dim, owner, owner_of):
    sent = {}
    for home in slices:
        for there in slices:
            counts = {k: n for k, n in home.counts.items() if owner_of(k) == there.rank}
            sent["keys", home.rank, there.rank] = key_message(counts)
            sent["rows", there.rank, home.rank] = rows(len(counts), dim)
            sent["gradients", home.rank, there.rank] = rows(len(counts), dim)
    return sent


def _table(slices, dim, owner, owner_of):
    return _owned(slices, dim, owner, lambda key: owner)


def _pooled_there(slices, columns):
    sent = {}
    for home in slices:
        for there in slices:
            sent["keys", home.rank, there.rank] = home.message
            values = rows(home.outputs, columns[there.rank])
            sent["rows", there.rank, home.rank] = values
            sent["gradients", home.rank, there.rank] = values
    return sent


def _column(slices, dim, owner, owner_of):
    columns = [len(part) for part in np.array_split(np.arange(dim), len(slices))]
    return _pooled_there(slices, columns)


def _row_broadcast(slices, dim, owner, owner_of):
    return _pooled_there(slices, [dim] * len(slices))


def _replicated(slices, dim, owner, owner_of):
    union = list(dict.fromkeys(key for home in slices for key in home.counts))
    ends = [len(union) * (rank + 1) // len(slices) for rank in range(len(slices))]
    part_of = {key: next(r for r, end in enumerate(ends) if i < end) for i, key in enumerate(union)}
    sent = {}
    for home in slices:
        for there in slices:
            own = [key for key in home.counts if part_of[key] == there.rank]
            sent["keys", home.rank, there.rank] = key_message(home.counts)
            sent["gradients", home.rank, there.rank] = rows(len(own), dim)
            summed = [key for key in union if part_of[key] == home.rank]
            sent["sums", home.rank, there.rank] = rows(len(summed), dim)
    return sent


_MESSAGES = {
    "row": _owned,
    "table": _table,
    "column": _column,
    "row_broadcast": _row_broadcast,
    "replicated": _replicated,
}
