"""Reads the rows of a Parquet file, and writes Parquet for `platform data convert`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.errors import NotFoundError
from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import LISTS, Column
from hotrow.trainer.data.delimited import EXPECTED_IDS, convert, first_wrong
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.libsvm import WEIGHTS_SUFFIX
from hotrow.trainer.data.malformed import MalformedLog, Problem
from hotrow.trainer.data.parquet_lists import as_text, float_lists, read_lists
from hotrow.trainer.data.piece import Span
from hotrow.trainer.data.read_share import ReadShare
from hotrow.trainer.data.row_skip import RowSkip

_MAGIC = b"PAR1"
BATCH_ROWS = 65_536
ROW_GROUP_ROWS = 262_144


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file and what to read from it; attributes as in `DelimitedSource`.

    Columns may be stored as text, numbers, or lists of them; each is converted to the requested
    kind.
    """

    path: Path
    columns: tuple[Column, ...]
    label: str | None
    positive: str | None
    weights: bool
    span: Span | None = None

    unit = "row"

    def part(self, span: Span) -> ParquetSource:
        """Returns a source of these rows."""
        return replace(self, span=span)

    def lines_before(self) -> int:
        """Returns 0: rows are numbered as in the file."""
        return 0

    def record_batches(
        self, log: MalformedLog, share: ReadShare, skip: RowSkip
    ) -> Iterator[pa.RecordBatch]:
        """Yields the legal rows: the label (float32), then `columns`.

        Row groups without rows of the span, or that end before the position of `skip`, are not
        read.

        Raises:
            DataError: the file cannot be read, or a row is malformed and the policy is `fail`.
        """
        names = [column.name for column in self.columns]
        if self.weights:
            names += [column.name + WEIGHTS_SUFFIX for column in self.columns]
        if self.label is not None:
            names = [self.label, *names]
        if self.span is not None and skip.whole(self.span[1] - self.span[0]):
            return
        try:
            with pq.ParquetFile(self.path) as file:
                start, stop = self.span or (0, file.metadata.num_rows)
                groups, row = _groups(file.metadata, (start, stop), skip)
                for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names):
                    own = _overlap((row, row + batch.num_rows), (start, stop))
                    share.set(own.stop - start, stop - start)
                    if own and not skip.whole(len(own)):
                        rows = batch.slice(own.start - row, len(own))
                        yield self._legal(rows.select(names), own.start + 1, log)
                    row += batch.num_rows
        except (OSError, pa.ArrowException) as err:
            raise DataError(f"{self.path} cannot be read as Parquet: {err}") from err

    def _legal(self, raw: pa.RecordBatch, first_row: int, log: MalformedLog) -> pa.RecordBatch:
        arrays, wrong = [], []
        text = {}
        if self.label is not None:
            text[self.label] = as_text(raw.column(self.label))
            labels, bad = text_values.to_labels(text[self.label], self.positive)
            arrays.append(labels)
            wrong.append((self.label, bad, text_values.expected_label(self.positive)))
        for column in self.columns:
            values = raw.column(column.name)
            if column.kind in LISTS:
                converted, bad = read_lists(values, column.kind)
                expected = EXPECTED_IDS
                text[column.name] = _shown_lists(values, bad)
            else:
                text[column.name] = as_text(values)
                converted, bad, expected = convert(text[column.name], column)
            arrays.append(converted)
            wrong.append((column.name, bad, expected))
        for weights in raw.columns[len(arrays) :]:
            ids = arrays[len(arrays) - len(self.columns)]
            arrays.append(self._weights(weights, ids))
        batch = pa.RecordBatch.from_arrays(arrays, names=raw.schema.names)
        any_bad = np.any([bad for _, bad, _ in wrong], axis=0) if wrong else np.zeros(0, np.bool_)
        rows_bad = np.flatnonzero(any_bad)
        if not rows_bad.size:
            return batch
        shown = pa.RecordBatch.from_pydict(text)
        log.add(Problem(first_row + int(i), first_wrong(shown, wrong, int(i))) for i in rows_bad)
        return batch.filter(pa.array(~any_bad))

    def _weights(self, stored: pa.Array, ids: pa.Array) -> pa.Array:
        weights = float_lists(stored)
        if not weights.offsets.equals(ids.offsets):
            raise DataError(f"{self.path}: a row has another number of ids than of weights")
        return weights


def _groups(metadata: Any, span: Span, skip: RowSkip) -> tuple[range, int]:
    """Returns the row groups to read, and the number of rows before them.

    These are the groups with rows of the span, without those that end before the position.
    """
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = [0, *accumulate(sizes)]
    own = [_overlap(rows, span) for rows in pairwise(starts)]
    first, last = 0, max((group + 1 for group, rows in enumerate(own) if rows), default=0)
    while first < last and (not own[first] or skip.whole(len(own[first]))):
        first += 1
    return range(first, last), starts[first]


def _overlap(rows: Span, span: Span) -> range:
    return range(max(rows[0], span[0]), min(rows[1], span[1]))


def is_parquet(path: Path) -> bool:
    """Returns whether a file has Parquet's name or magic; False if it does not exist."""
    if path.suffix == ".parquet":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def parquet_schema(path: Path) -> pa.Schema:
    """Returns names and types of the columns of a Parquet file.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is not Parquet, or damaged.
    """
    return _read(pq.read_schema, path)


def row_group_rows(path: Path) -> list[int]:
    """Returns how many rows each row group of a Parquet file has.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is not Parquet, or damaged.
    """
    metadata = _read(pq.read_metadata, path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


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


def _shown_lists(values: pa.Array, bad: text_values.Bools) -> pa.Array:
    """Returns the lists of bad rows as text, "" for the others."""
    if not bad.any():
        return pa.repeat("", len(values))
    return pa.array([str(values[i].as_py()) if bad[i] else "" for i in range(len(values))])
