"""`summarize`: the contents of a data file, column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.trainer.data.columns import LISTS, Column, ColumnKind
from hotrow.trainer.data.data_file import DataFile
from hotrow.trainer.data.malformed import Malformed
from hotrow.trainer.data.value_statistics import NumberStatistics, number_share, separator_of

MERGE_AFTER_VALUES = 1_000_000


@dataclass(frozen=True)
class ColumnSummary:
    """The contents of a column.

    Attributes:
        name: its name.
        kind: "number", "integer", "text", "integers", "ids" or "texts"; a text column whose values
            are all numbers or integers has that kind.
        missing_share: share of all rows without a value.
        distinct: number of distinct values in the counted rows, without missing ones.
        top: the most frequent of them with their counts, the most frequent first.
        mean: for numbers, the mean of all rows; for a list, the mean number of values a row; None
            for a text.
        low, high: the smallest and the largest number in all rows.
        number_share: share of a text's values that are numbers, in the counted rows.
        separator: the probable separator between several values of a text.
    """

    name: str
    kind: str
    missing_share: float
    distinct: int
    top: tuple[tuple[str, int], ...]
    mean: float | None
    low: float | None = None
    high: float | None = None
    number_share: float | None = None
    separator: str | None = None


@dataclass(frozen=True)
class Summary:
    """The contents of a data file.

    Attributes:
        path: the file.
        rows: number of legal rows.
        counted_rows: number of first rows in which distinct and top values were counted.
        malformed: the lines that are not legal.
        label_rate: share of label 1; None without labels.
        columns: one summary a column, in the file's order.
    """

    path: str
    rows: int
    counted_rows: int
    malformed: Malformed
    label_rate: float | None
    columns: tuple[ColumnSummary, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as plain values."""
        return {
            **asdict(self),
            "malformed": self.malformed.count,
            "first_malformed_line": self.malformed.first_line,
            "first_malformed_reason": self.malformed.reason,
        }


def summarize(
    file: DataFile,
    counted_rows: int,
    top: int,
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    typed: bool = True,
) -> Summary:
    """Reads a file once and returns its summary.

    Args:
        file: the file; its policy for malformed lines applies.
        counted_rows: distinct and top values are exact for this many first rows, at least 1; memory
            grows with the distinct values among them.
        top: number of top values to keep.
        on_rows: called with the number of rows just read.
        typed: False: text columns may hold numbers, as in a CSV; detect them.

    Raises:
        DataError: as `DataFile.record_batches`.
    """
    collectors = [_Collector(column, typed) for column in file.columns]
    rows, positives = 0, 0.0
    for batch in file.record_batches():
        for collector in collectors:
            values = batch.column(collector.column.name)
            collector.add(values, values.slice(0, max(0, counted_rows - rows)))
        if file.has_labels:
            positives += float(np.sum(batch.column(0).to_numpy()))
        rows += batch.num_rows
        on_rows(batch.num_rows)
    return Summary(
        path=str(file.path),
        rows=rows,
        counted_rows=min(rows, counted_rows),
        malformed=file.malformed,
        label_rate=positives / rows if file.has_labels else None,
        columns=tuple(collector.result(rows, top) for collector in collectors),
    )


class _Collector:
    """Collects the statistics of one column."""

    def __init__(self, column: Column, typed: bool) -> None:
        self.column = column
        self._missing = 0
        self._counts: list[pa.Table] = []
        self._uncombined = 0
        self._kind = column.kind
        if column.kind is ColumnKind.TEXT and not typed:
            self._kind = ColumnKind.INTEGER  # until a value is not an integer
        self._numbers = NumberStatistics()
        self._values = 0  # in lists

    def add(self, values: pa.Array, counted: pa.Array) -> None:
        """Adds values; the `counted` ones enter the distinct and top values."""
        if self._kind in LISTS:
            lengths = np.diff(values.offsets.to_numpy())
            self._missing += int(np.sum(lengths == 0))
            self._values += int(lengths.sum())
            counted = counted.flatten()
        else:
            present = _present(values)
            self._missing += len(values) - len(present)
            counted = _present(counted)
            self._add_numbers(present)
        found = counted.value_counts()
        self._counts.append(pa.table({"value": found.field(0), "count": found.field(1)}))
        self._uncombined += len(found)
        if self._uncombined > MERGE_AFTER_VALUES:
            self._merge()

    def result(self, rows: int, top: int) -> ColumnSummary:
        """Returns the statistics over `rows` rows."""
        counts = self._merge()
        order = pc.sort_indices(counts, [("count", "descending"), ("value", "ascending")])
        best = counts.take(order.slice(0, top))
        values = [_shown(value) for value in best["value"]]
        kind, numbers = self._kind, self._numbers
        if self._missing == rows:
            kind = self.column.kind
        is_number = kind in (ColumnKind.NUMBER, ColumnKind.INTEGER) and rows > self._missing
        mean = None
        if kind in LISTS:
            mean = self._values / rows
        elif is_number:
            mean = numbers.total / (rows - self._missing)
        return ColumnSummary(
            name=self.column.name,
            kind=kind.value,
            missing_share=self._missing / rows,
            distinct=counts.num_rows,
            top=tuple(zip(values, best["count"].to_pylist(), strict=True)),
            mean=mean,
            low=numbers.low if is_number else None,
            high=numbers.high if is_number else None,
            number_share=number_share(counts) if kind is ColumnKind.TEXT else None,
            separator=separator_of(counts) if kind is ColumnKind.TEXT else None,
        )

    def _add_numbers(self, present: pa.Array) -> None:
        """Adds to the statistics of numbers; a text that is no number ends them."""
        if self._kind is ColumnKind.INTEGER:
            try:
                self._numbers.add(present.cast(pa.int64()))
            except pa.ArrowInvalid:
                self._kind = ColumnKind.NUMBER
        if self._kind is ColumnKind.NUMBER:
            try:
                self._numbers.add(present.cast(pa.float64()))
            except pa.ArrowInvalid:
                self._kind = ColumnKind.TEXT

    def _merge(self) -> pa.Table:
        """Returns the counts so far, one row a value."""
        grouped = pa.concat_tables(self._counts).group_by("value").aggregate([("count", "sum")])
        merged = grouped.rename_columns(["value", "count"])
        self._counts, self._uncombined = [merged], 0
        return merged


def _present(values: pa.Array) -> pa.Array:
    """Returns the values that are not missing."""
    if pa.types.is_string(values.type):
        return values.filter(pc.not_equal(values, ""))
    if pa.types.is_floating(values.type):
        return values.filter(pc.is_finite(values).fill_null(False))
    return values.drop_null()


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_floating(value.type):
        return f"{value.as_py():g}"
    if pa.types.is_string(value.type):
        data: bytes = value.cast(pa.binary()).as_py()
        return data.decode(errors="replace")
    return str(value.as_py())
