"""`DataFile`: the rows of one file, as Arrow batches or as raw batches of a fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from hotrow.config import DataConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.arrow_rows import cut_rows, join_rows, number_of_rows
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.columns import Column
from hotrow.trainer.data.malformed import Malformed, MalformedLog
from hotrow.trainer.data.pass_check import PassCheck
from hotrow.trainer.data.piece import Span
from hotrow.trainer.data.raw_rows import raw_batch
from hotrow.trainer.data.read_share import ReadShare
from hotrow.trainer.data.regroup import regroup
from hotrow.trainer.data.row_skip import RowSkip


class Source(Protocol):
    """The interface of a format: it yields its rows as Arrow record batches."""

    @property
    def unit(self) -> str:
        """The word for a row in messages: "line" or "row"."""

    @property
    def label(self) -> str | None:
        """The label's column in the record batches, None when there are no labels."""

    def part(self, span: Span) -> Source:
        """Returns a source of a part of the file; see `Span`."""

    def lines_before(self) -> int:
        """Returns what to add to the number of a malformed line; may read the file up to it."""

    def record_batches(
        self, log: MalformedLog, share: ReadShare, skip: RowSkip
    ) -> Iterator[pa.RecordBatch]:
        """Yields the legal rows, passes the others to `log`, and keeps `share` up to date.

        It may leave out pieces that end before the position of `skip`, and counts them there; they
        have no malformed row.
        """


class DataFile:
    """An existing data file, with the columns to read from it.

    Attributes:
        path: the file.
        columns: the columns to read, in order.
    """

    def __init__(
        self, path: Path, source: Source, columns: tuple[Column, ...], data: DataConfig
    ) -> None:
        """Binds a source; `open_data` makes these."""
        self.path = path
        self.columns = columns
        self._source = source
        self._data = data
        self._log = self._new_log()
        self._share = ReadShare()

    @property
    def has_labels(self) -> bool:
        """Whether the rows carry labels."""
        return self._source.label is not None

    @property
    def malformed(self) -> Malformed:
        """The lines skipped so far by the newest pass over the file."""
        return self._log.seen

    @property
    def read_share(self) -> float:
        """Share of the file that the newest pass has read, in [0, 1]; for text, bytes on disk."""
        return self._share.value

    def part(self, span: Span) -> DataFile:
        """Returns a part of the file; see `Span`."""
        return DataFile(self.path, self._source.part(span), self.columns, self._data)

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows as Arrow batches of any size: the label first, then `columns`.

        Each call starts a new pass and a new count of malformed lines.

        Raises:
            DataError: as `rows`; also if no line is legal, or no label is `data.positive`.
        """
        check = PassCheck([self.path], self._data)
        for batch in self.rows():
            check.add(batch, self.has_labels)
            yield batch
        check.end(self.malformed)

    def rows(
        self, skip: RowSkip | None = None, log: MalformedLog | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows as `record_batches` does, but the file may have none, with any label.

        Args:
            skip: rows to leave out, which an earlier pass has read; it counts those of this file.
                With the policy `fail` they are not malformed, so most of them are only counted;
                with `skip` each one is read. None: all rows are yielded.
            log: takes the malformed lines; None: a log with the policy of the file.

        Raises:
            DataError: the file cannot be read, or a line is malformed and the policy is `fail`.
        """
        self._log = self._new_log() if log is None else log
        self._share = ReadShare()
        skip = RowSkip() if skip is None else skip
        unread = skip if self._data.on_malformed == "fail" else RowSkip()
        for batch in self._source.record_batches(self._log, self._share, unread):
            rest = skip.cut(batch)
            if rest.num_rows or not batch.num_rows:
                yield rest

    def raw_batches(self, batch_size: int, limit: int | None = None) -> Iterator[RawBatch]:
        """Yields batches of `batch_size` rows in file order; the last may have fewer.

        Args:
            batch_size: B, at least 1.
            limit: stop after this many rows; None reads all.

        Raises:
            InvalidArgumentError: `batch_size` or `limit` is below 1.
            DataError: as `record_batches`.
        """
        for name, value in (("batch_size", batch_size), ("limit", limit)):
            if value is not None and value < 1:
                raise InvalidArgumentError(f"{name} is {value}; it must be at least 1")
        batches = self.record_batches()
        if limit is not None:
            batches = _first(batches, limit)
        for batch in regroup(
            batches, batch_size, size=number_of_rows, cut=cut_rows, join=join_rows
        ):
            yield self.to_raw(batch)

    def to_raw(self, batch: pa.RecordBatch) -> RawBatch:
        """Returns an Arrow batch of this file as a `RawBatch`."""
        return raw_batch(batch, self.columns, self._source.label)

    def _new_log(self) -> MalformedLog:
        source = self._source
        return MalformedLog(
            str(self.path), self._data.on_malformed, source.unit, source.lines_before
        )


def _first(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
