"""The columns that a reader must deliver, and their kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from hotrow.config import CRITEO_DENSE, FeaturesConfig, SparseColumn
from hotrow.errors import InvalidArgumentError, nearest

MISSING_KEY = -(2**63)
"""The key of a missing value in a column of integers that are keys themselves."""


class ColumnKind(Enum):
    """The kind of a column's values, in the file and in a `RawBatch`."""

    NUMBER = "number"
    """float32 [B]; empty or `nan` is missing, NaN."""
    INTEGER = "integer"
    """int64 [B]; empty is missing, `MISSING_KEY`."""
    TEXT = "text"
    """strings [B]; empty is missing."""
    INTEGERS = "integers"
    """strings [B], each holding integers between separators; checked when read."""
    WEIGHT = "weight"
    """float32 [B], at least 0: what a row counts for; none may be missing."""
    IDS = "ids"
    """`Ragged` int64 ids: of a LibSVM line, or a Parquet list."""
    TEXTS = "texts"
    """`Ragged` strings: a Parquet list."""


LISTS = (ColumnKind.IDS, ColumnKind.TEXTS)
"""Kinds with any number of values a row."""


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
        name: the column's name in the file.
        kind: the kind of its values.
        separator: the separator between the values of a text; None: a text is one value.
    """

    name: str
    kind: ColumnKind
    separator: str | None = None


def columns_of(features: FeaturesConfig, data_format: str) -> tuple[Column, ...]:
    """Returns the columns that `features` uses, each once, in their order of first use.

    A column that is both dense and bucketized is a number in both (`FeaturesConfig` allows no
    other column twice).

    Raises:
        InvalidArgumentError: the file is LibSVM and the features are not one sparse column.
    """
    wanted = [Column(column.name, ColumnKind.NUMBER) for column in features.dense_columns()]
    wanted += [_sparse_column(column, data_format) for column in features.sparse_columns()]
    columns = {column.name: column for column in wanted}
    if data_format == "libsvm" and [c.kind for c in columns.values()] != [ColumnKind.IDS]:
        raise InvalidArgumentError(
            f"features: a LibSVM file is one sparse column of ids, but {len(columns)} columns are "
            f"named: {', '.join(columns)}; name one under sparse and none under dense"
        )
    return tuple(columns.values())


def default_columns(data_format: str, names: Iterable[str]) -> tuple[Column, ...]:
    """Returns the columns to read from `names` when no features are given.

    Criteo's I columns are numbers and everything else is text; LibSVM has one column of ids.
    """
    if data_format == "libsvm":
        return (Column("ids", ColumnKind.IDS),)
    numbers = frozenset(CRITEO_DENSE if data_format == "criteo" else ())
    return tuple(
        Column(name, ColumnKind.NUMBER if name in numbers else ColumnKind.TEXT) for name in names
    )


def require_present(columns: Iterable[Column], names: Sequence[str], where: str) -> None:
    """Checks that every column is one of `names`.

    Raises:
        InvalidArgumentError: one is not; the message gives the nearest name that is.
    """
    for column in columns:
        if column.name not in names:
            raise InvalidArgumentError(
                f"{where} has no column {column.name!r}{nearest(column.name, names)}; "
                f"it has: {', '.join(names)}"
            )


def _sparse_column(column: SparseColumn, data_format: str) -> Column:
    if data_format == "libsvm":
        return Column(column.name, ColumnKind.IDS)
    if column.boundaries is not None:
        return Column(column.name, ColumnKind.NUMBER)
    if column.lists:
        return Column(column.name, ColumnKind.TEXTS if column.hash else ColumnKind.IDS)
    if column.hash:
        return Column(column.name, ColumnKind.TEXT, column.separator)
    if column.separator is not None:
        return Column(column.name, ColumnKind.INTEGERS, column.separator)
    return Column(column.name, ColumnKind.INTEGER)
