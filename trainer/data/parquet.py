"""Rows of a Parquet file, as `platform data convert` writes them, and the writing of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hotrow.errors import NotFoundError
from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import Column, ColumnKind
from hotrow.trainer.data.delimited import convert, first_wrong
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.libsvm import WEIGHTS_SUFFIX
from hotrow.trainer.data.malformed import MalformedLog, Problem
from hotrow.trainer.data.read_share import ReadShare

BATCH_ROWS = 65_536
ROW_GROUP_ROWS = 262_144


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file and what to read from it; attributes as in `DelimitedSource`.

    Columns may be stored as text or as numbers; either is converted to the kind asked for.
    """

    path: Path
    columns: tuple[Column, ...]
    label: str | None
    positive: str | None
    weights: bool

    unit = "row"

    def record_batches(self, log: MalformedLog, share: ReadShare) -> Iterator[pa.RecordBatch]:
        """Yields the legal rows: the label (float32), then `columns`.

        Raises:
            DataError: the file cannot be read, or a row is malformed and the policy is `fail`.
        """
        names = [column.name for column in self.columns]
        if self.weights:
            names += [column.name + WEIGHTS_SUFFIX for column in self.columns]
        if self.label is not None:
            names = [self.label, *names]
        row = 1
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=names):
                    share.set(row - 1 + batch.num_rows, file.metadata.num_rows)
                    yield self._legal(batch.select(names), row, log)
                    row += batch.num_rows
        except (OSError, pa.ArrowException) as err:
            raise DataError(f"{self.path} cannot be read as Parquet: {err}") from err

    def _legal(self, raw: pa.RecordBatch, first_row: int, log: MalformedLog) -> pa.RecordBatch:
        arrays, wrong = [], []
        text = {}
        if self.label is not None:
            text[self.label] = _as_text(raw.column(self.label))
            labels, bad = text_values.to_labels(text[self.label], self.positive)
            arrays.append(labels)
            wrong.append((self.label, bad, text_values.expected_label(self.positive)))
        for column in self.columns:
            values = raw.column(column.name)
            if column.kind is ColumnKind.IDS:
                arrays.append(values)
                continue
            text[column.name] = _as_text(values)
            converted, bad, expected = convert(text[column.name], column)
            arrays.append(converted)
            wrong.append((column.name, bad, expected))
        arrays += raw.columns[len(arrays) :]
        batch = pa.RecordBatch.from_arrays(arrays, names=raw.schema.names)
        any_bad = np.any([bad for _, bad, _ in wrong], axis=0) if wrong else np.zeros(0, np.bool_)
        rows_bad = np.flatnonzero(any_bad)
        if not rows_bad.size:
            return batch
        shown = pa.RecordBatch.from_pydict(text)
        log.add(Problem(first_row + int(i), first_wrong(shown, wrong, int(i))) for i in rows_bad)
        return batch.filter(pa.array(~any_bad))


def parquet_columns(path: Path) -> tuple[Column, ...]:
    """Returns the columns of a Parquet file, each as the kind nearest to its stored type.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is not Parquet, or damaged.
    """
    schema = _read(pq.read_schema, path)
    return tuple(Column(field.name, _kind(field.type)) for field in schema)


def parquet_rows(path: Path) -> int:
    """Returns how many rows a Parquet file has.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is not Parquet, or damaged.
    """
    return int(_read(pq.read_metadata, path).num_rows)


def _read(reader: Callable[[Path], Any], path: Path) -> Any:
    try:
        return reader(path)
    except FileNotFoundError as err:
        raise NotFoundError(f"data file {path} does not exist") from err
    except (OSError, pa.ArrowException) as err:
        raise DataError(f"{path} cannot be read as Parquet: {err}") from err


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes `batches` to `path`, which appears only when it is whole; returns the row count.

    Raises:
        DataError: there is no batch, or the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    rows = 0
    writer: pq.ParquetWriter | None = None
    try:
        for batch in batches:
            if writer is None:
                writer = pq.ParquetWriter(partial, batch.schema, compression="zstd")
            writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
            rows += batch.num_rows
        if writer is None:
            raise DataError(f"{path} was not written: there is no row to write")
        writer.close()
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as err:
        raise DataError(f"{path} cannot be written: {err.strerror or err}") from err
    finally:
        if writer is not None and writer.is_open:
            writer.close()
        partial.unlink(missing_ok=True)
    return rows


def _as_text(values: pa.Array) -> pa.Array:
    """Returns values as text, "" where null; whole floats lose nothing for the columns read."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.string()).fill_null("")


def _kind(stored: pa.DataType) -> ColumnKind:
    if pa.types.is_list(stored):
        return ColumnKind.IDS
    if pa.types.is_integer(stored):
        return ColumnKind.INTEGER
    if pa.types.is_floating(stored):
        return ColumnKind.NUMBER
    return ColumnKind.TEXT
