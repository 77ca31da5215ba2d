"""Rows of the true model, block by block: block `i` of a file is always the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE
from hotrow.trainer.data.batch import Ints
from hotrow.trainer.data.synthetic.true_model import TrueModel
from hotrow.trainer.data.synthetic.zipf import Array

BLOCK_ROWS = 65_536  # part of the recipe: another number gives other rows

_HEX = np.frombuffer("".join(f"{i:04x}" for i in range(2**16)).encode(), dtype=np.uint32)


@dataclass(frozen=True)
class Block:
    """Generated rows.

    Attributes:
        table: label, I1..I13 (int64, null where missing), C1..C26 (string, "" where missing).
        labels: float64 [B].
        probabilities: float64 [B], the true probabilities of label 1.
    """

    table: pa.RecordBatch
    labels: Array
    probabilities: Array


def generate_blocks(model: TrueModel, rows: int, stream: int) -> Iterator[Block]:
    """Yields `rows` rows; the first rows do not depend on how many follow.

    Args:
        model: what to draw from.
        rows: how many, at least 1.
        stream: number of the file; other numbers give other rows of the same model.
    """
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        yield _draw(model, min(BLOCK_ROWS, rows - start), stream, number)


def _draw(model: TrueModel, rows: int, stream: int, number: int) -> Block:
    seeds = np.random.SeedSequence(model.parameters.seed, spawn_key=(1, stream, number))
    rng = np.random.Generator(np.random.SFC64(seeds))
    ranks, counts = [], []
    for zipf, missing in zip(model.zipfs, model.missing, strict=True):
        drawn = zipf.draw(rng.random(BLOCK_ROWS)[:rows])
        drawn[_missing(rng, missing, rows)] = -1
        ranks.append(drawn)
    for law in model.counts:
        normal = rng.standard_normal(BLOCK_ROWS)[:rows]
        count = np.exp(law.mean + law.deviation * normal).astype(np.int64)
        count[_missing(rng, law.missing, rows)] = -1
        counts.append(count)
    probabilities = model.probabilities(model.logits(ranks, counts))
    labels = (rng.random(BLOCK_ROWS)[:rows] < probabilities).astype(np.float64)
    columns = [
        pa.array(labels.astype(np.int8)),
        *(pa.array(count, mask=count < 0) for count in counts),
        *(_hex_keys(drawn, column) for column, drawn in enumerate(ranks)),
    ]
    names = ["label", *CRITEO_DENSE, *CRITEO_SPARSE]
    return Block(pa.RecordBatch.from_arrays(columns, names=names), labels, probabilities)


def _missing(rng: np.random.Generator, share: float, rows: int) -> npt.NDArray[np.bool_]:
    if share == 0.0:
        return np.zeros(rows, dtype=np.bool_)
    return rng.random(BLOCK_ROWS)[:rows] < share


def _hex_keys(ranks: Ints, column: int) -> pa.Array:
    """Returns the keys string [B] of ranks int64 [B]; "" for -1.

    The rank goes through the finalizer of MurmurHash3, which maps 32 bits one to one, so ranks
    of a column never share a key.
    """
    mixed = ranks.astype(np.uint32) ^ np.uint32(0x9E3779B9 * (column + 1) % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    present = mixed[ranks >= 0]
    digits = np.empty((len(present), 2), dtype=np.uint32)
    digits[:, 0] = _HEX[present >> np.uint32(16)]
    digits[:, 1] = _HEX[present & np.uint32(0xFFFF)]
    offsets = np.zeros(len(ranks) + 1, dtype=np.int32)
    np.cumsum((ranks >= 0) * np.int32(8), out=offsets[1:])
    return pa.StringArray.from_buffers(len(ranks), pa.py_buffer(offsets), pa.py_buffer(digits))
