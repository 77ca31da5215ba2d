"""Checks requested columns against the types that a Parquet file stores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.columns import LISTS, Column, ColumnKind
from hotrow.trainer.data.parquet_lists import is_list


def stored_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Returns the readable columns, each as the kind nearest to its stored type."""
    return tuple(
        Column(field.name, _kind(field.type)) for field in schema if _is_readable(field.type)
    )


def require_fit(columns: Iterable[Column], schema: pa.Schema, path: Path) -> None:
    """Checks that a Parquet file can deliver columns as the requested kinds.

    Raises:
        InvalidArgumentError: a column is stored as lists but one value a row is requested, or the
            other way round; or its type cannot be read.
    """
    for column in columns:
        _require_fit(column, schema.field(column.name).type, path)


def _require_fit(column: Column, stored: pa.DataType, path: Path) -> None:
    where = f"{path}: column {column.name!r}"
    if not _is_readable(stored):
        raise InvalidArgumentError(
            f"{where} is stored as {stored}; numbers, texts and lists of them can be read"
        )
    if is_list(stored) == (column.kind in LISTS):
        return
    if not is_list(stored):
        raise InvalidArgumentError(
            f"{where} has one value a row ({stored}), but lists are needed; store lists, "
            "or leave features.sparse.lists out"
        )
    if column.separator is not None:
        raise InvalidArgumentError(
            f"{where} is stored as lists ({stored}), which need no separator; leave "
            f"features.sparse.separator {column.separator!r} out"
        )
    raise InvalidArgumentError(
        f"{where} is stored as lists ({stored}), but one value a row is needed; only "
        "features.sparse takes lists, without buckets and with lists: true"
    )


def _is_readable(stored: pa.DataType) -> bool:
    if is_list(stored):
        return not pa.types.is_nested(stored.value_type)
    return not pa.types.is_nested(stored)


def _kind(stored: pa.DataType) -> ColumnKind:
    if is_list(stored):
        integers = pa.types.is_integer(stored.value_type)
        return ColumnKind.IDS if integers else ColumnKind.TEXTS
    if pa.types.is_integer(stored):
        return ColumnKind.INTEGER
    if pa.types.is_floating(stored):
        return ColumnKind.NUMBER
    return ColumnKind.TEXT
