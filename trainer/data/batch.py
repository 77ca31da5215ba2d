"""The two forms of a batch: `RawBatch` as the file has it, `Batch` as the model takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = "npt.NDArray[Any] | Ragged"


@dataclass(frozen=True, eq=False)
class Ragged:
    """A column with any number of values a row.

    Attributes:
        values: the values of all rows, one row after the other: ids, int64 [N]; texts, an Arrow
            string array [N] without nulls in `RawBatch.arrays`, an object array [N] of `bytes` in
            `RawBatch.columns`.
        row_splits: int64 [B + 1]; row `i` owns `values[row_splits[i]:row_splits[i + 1]]`.
        weights: float32 [N], or None where every id weighs 1.
    """

    values: Any
    row_splits: Ints
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of one sparse feature.

    Attributes:
        keys: int64 [N].
        row_splits: int64 [B + 1], or None where every row has exactly one key (then N == B).
        weights: float32 [N], or None where every key weighs 1.
    """

    keys: Ints
    row_splits: Ints | None = None
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class RawBatch:
    """Rows in the form of a file, which clients also send to a server, before any hashing.

    Attributes:
        arrays: column name -> values; strings may be an Arrow array, so that encoding needs no
            Python object per value. `columns` gives plain numpy.
        labels: float32 [B] of 0 and 1, or None when the file has no labels.
        size: B.
        weights: float32 [B], the weight of each row; None: each weighs 1.
    """

    arrays: Mapping[str, pa.Array | npt.NDArray[Any] | Ragged]
    labels: Floats | None
    size: int
    weights: Floats | None = None

    @cached_property
    def columns(self) -> dict[str, Values]:
        """The columns as numpy, converted on first use.

        Numbers are float32 [B] with NaN where a value is missing; integers int64 [B]; strings an
        object array [B] of `bytes`, `b""` where missing; lists of ids or texts a `Ragged`.
        """
        return {name: _as_numpy(values) for name, values in self.arrays.items()}

    def text(self, name: str) -> pa.Array:
        """Returns a string column as an Arrow string array [B] without nulls."""
        values = self.arrays[name]
        if isinstance(values, np.ndarray):
            return pa.array(values.tolist(), type=pa.binary()).cast(pa.string(), safe=False)
        return values

    def array(self, name: str) -> npt.NDArray[Any]:
        """Returns a column with one value a row as numpy [B]; see `columns` for its type.

        Raises:
            TypeError: the column is ragged.
        """
        values = _as_numpy(self.arrays[name])
        if isinstance(values, Ragged):
            raise TypeError(f"column {name!r} is ragged; read it from `columns`")
        return values


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows in the form of a model's input.

    Attributes:
        dense: float32 [B, n_dense] in the order of the dense columns; NaN where missing.
        sparse: column name -> its keys.
        labels: float32 [B] of 0 and 1, or None when the file has no labels.
        global_rows: number of rows in the batch of all ranks, if these rows are a part of it; None:
            these are all.
        weights: float32 [B], the weight of each row; None: each weighs 1.
    """

    dense: Floats
    sparse: dict[str, Keys]
    labels: Floats | None
    global_rows: int | None = None
    weights: Floats | None = None

    @property
    def size(self) -> int:
        """B, the number of rows."""
        return len(self.dense)

    @property
    def global_size(self) -> int:
        """Number of rows in the batch of all ranks."""
        return self.size if self.global_rows is None else self.global_rows


def _as_numpy(values: pa.Array | npt.NDArray[Any] | Ragged) -> Values:
    if isinstance(values, Ragged):
        flat = _as_numpy(values.values)
        return replace(values, values=flat)
    if isinstance(values, np.ndarray):
        return values
    array: npt.NDArray[Any] = (
        pc.cast(values, pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False)
    )
    return array
