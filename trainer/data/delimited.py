"""Rows of delimited text (Criteo TSV, CSV) from blocks of lines, by Arrow's CSV parser.

Two paths give the same rows. The fast one lets Arrow convert while it parses. A block with any
error goes to the slow one, which reads text, converts column by column and finds every bad line and
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import Column, ColumnKind
from hotrow.trainer.data.lines import LineBlock, line_blocks, lines_before
from hotrow.trainer.data.malformed import MalformedLog, Problem, shown
from hotrow.trainer.data.piece import Span
from hotrow.trainer.data.read_share import ReadShare
from hotrow.trainer.data.row_count import rows_of_lines
from hotrow.trainer.data.row_skip import RowSkip
from hotrow.trainer.data.text_values import Bools

_FAST_TYPES = {
    ColumnKind.NUMBER: pa.float32(),
    ColumnKind.WEIGHT: pa.float32(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.TEXT: pa.string(),
    ColumnKind.INTEGERS: pa.string(),
}
_TEXTS = "features.sparse.hash: true takes any text"
_EXPECTED = {
    ColumnKind.NUMBER: "a finite number",
    ColumnKind.INTEGER: f"a 64-bit integer; {_TEXTS}",
}
EXPECTED_IDS = f"64-bit integers; {_TEXTS}"


@dataclass(frozen=True)
class DelimitedSource:
    """A file of delimited text and what to read from it.

    Attributes:
        path: the file.
        names: the names of all fields of a line, in order.
        columns: the columns to read, each one of `names`.
        label: the field of the label, or None to read no labels.
        positive: the label's text that means 1; None: the label is 0 or 1.
        delimiter: one character.
        header: the first line holds names, not values.
        quoted: values may stand in double quotes.
        trimmed: blanks around values do not belong to them.
        text_labels: `positive` may be set.
        span: the bytes to read; None: all.
    """

    path: Path
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    label: str | None
    positive: str | None
    delimiter: str
    header: bool
    quoted: bool
    trimmed: bool
    text_labels: bool = True
    span: Span | None = None

    unit = "line"

    def part(self, span: Span) -> DelimitedSource:
        """Returns a source of the lines that begin in these bytes; the file has plain text."""
        return replace(self, span=span)

    def lines_before(self) -> int:
        """Counts the lines before the span."""
        return 0 if self.span is None else lines_before(self.path, self.span[0])

    def record_batches(
        self, log: MalformedLog, share: ReadShare, skip: RowSkip
    ) -> Iterator[pa.RecordBatch]:
        """Yields the legal rows, block by block: the label (float32), then `columns`.

        Of blocks that end before the position of `skip`, it counts the rows only.

        Raises:
            DataError: the file cannot be read, or a line is malformed and the policy is `fail`.
        """
        at_start = self.span is None or self.span[0] == 0
        names = int(self.header and at_start)
        for block in line_blocks(self.path, names, share=share, skip=skip, span=self.span):
            if skip.left and skip.whole(self._rows_of(block.data)):
                continue
            batch = self.block_rows(block, log)
            if batch.num_rows:
                yield batch

    def block_rows(self, block: LineBlock, log: MalformedLog) -> pa.RecordBatch:
        """Returns the legal rows of a block, and passes its other lines to `log`.

        Raises:
            DataError: a line is malformed and the policy is `fail`.
        """
        block = self._without_open_quotes(block, log)
        batch = self._fast(block)
        return self._slow(block, log) if batch is None else batch

    def _rows_of(self, data: bytes) -> float:
        """Returns how many rows a block has; infinity: unknown, a line may be malformed.

        A line of blanks is no row: as one, it would have no label.
        """
        if self.label is None:
            return math.inf
        if not self.quoted or b'"' not in data:
            return rows_of_lines(data)
        if any(line.count(b'"') % 2 for line in data.split(b"\n")):
            return math.inf
        readable = _decode(data).encode()  # as in `_parse_skipping`
        try:  # the parser decides where quoted values end
            labels = self._parse(readable, {self.label: pa.string()}, _skip_blank)
        except pa.ArrowInvalid:
            return math.inf
        return int(labels.num_rows)

    def _without_open_quotes(self, block: LineBlock, log: MalformedLog) -> LineBlock:
        """Returns the block with empty lines for those whose quotes do not close.

        A value never spans lines; the parser would take all that follows for one value.
        """
        if not self.quoted or b'"' not in block.data:
            return block
        lines = block.data.split(b"\n")
        open_ended = [i for i, line in enumerate(lines) if line.count(b'"') % 2]
        if not open_ended:
            return block
        log.add(
            [
                Problem(
                    block.first_line + i,
                    f"a double quote that is not closed: {shown(_decode(lines[i]))}",
                )
                for i in open_ended
            ]
        )
        for i in open_ended:
            lines[i] = b""
        return LineBlock(b"\n".join(lines), block.first_line)

    def _fast(self, block: LineBlock) -> pa.RecordBatch | None:
        """Returns the rows of a block without any problem, None when there may be one."""
        types = {column.name: _FAST_TYPES[column.kind] for column in self.columns}
        if self.label is not None:
            types = {self.label: pa.string()} | types
        try:
            batch = self._trim(self._parse(block.data, types))
        except pa.ArrowInvalid:
            return None
        if self.label is not None:
            labels, bad = text_values.to_labels(batch.column(self.label), self.positive)
            if bad.any():
                return None
            batch = pa.RecordBatch.from_arrays([labels, *batch.columns[1:]], list(types))
        for column in self.columns:
            values = batch.column(column.name)
            if column.kind is ColumnKind.NUMBER and pc.any(pc.is_inf(values)).as_py():
                return None
            if column.kind is ColumnKind.INTEGERS:
                return None
            if column.kind is ColumnKind.WEIGHT and not _are_weights(values):
                return None
        return batch

    def _slow(self, block: LineBlock, log: MalformedLog) -> pa.RecordBatch:
        """Returns the legal rows of a block and gives the others to `log`."""
        names = [column.name for column in self.columns]
        if self.label is not None:
            names = [self.label, *names]
        rows = block.rows()
        raw, skipped = self._parse_skipping(block, rows, dict.fromkeys(names, pa.string()))
        raw = self._trim(raw)
        arrays, wrong = [], []
        if self.label is not None:
            labels, bad = text_values.to_labels(raw.column(self.label), self.positive)
            arrays.append(labels)
            expected = text_values.expected_label(self.positive, self.text_labels)
            wrong.append((self.label, bad, expected))
        for column in self.columns:
            values, bad, expected = convert(raw.column(column.name), column)
            arrays.append(values)
            wrong.append((column.name, bad, expected))
        batch = pa.RecordBatch.from_arrays(arrays, names=names)

        any_bad = np.any([bad for _, bad, _ in wrong], axis=0)
        rows_bad = np.flatnonzero(any_bad)
        problems = [
            Problem(
                rows[i][0], f"{count} fields, not {len(self.names)}: {shown(_decode(rows[i][1]))}"
            )
            for i, count in skipped.items()
            if rows[i][1].strip()
        ]
        if rows_bad.size:
            kept = np.delete(np.arange(len(rows)), list(skipped))
            problems += [
                Problem(rows[kept[row]][0], first_wrong(raw, wrong, int(row))) for row in rows_bad
            ]
        log.add(problems)
        return batch.filter(pa.array(~any_bad)) if rows_bad.size else batch

    def _parse_skipping(
        self, block: LineBlock, rows: list[tuple[int, bytes]], types: dict[str, pa.DataType]
    ) -> tuple[pa.RecordBatch, dict[int, int]]:
        """Returns the rows with as many fields as names, and the others: index -> field count."""
        counts: dict[int, int] = {}

        def skip(row: pa.csv.InvalidRow) -> str:
            counts[row.number - 1] = row.actual_columns
            return "skip"

        readable = _decode(block.data).encode()
        parsed = self._parse(readable, types, skip)
        if readable != block.data:  # Arrow can call `skip` with valid UTF-8 only
            exact = b"\n".join(line for i, (_, line) in enumerate(rows) if i not in counts)
            parsed = self._parse(exact, types)
        return parsed, counts

    def _parse(
        self,
        data: bytes,
        types: dict[str, pa.DataType],
        on_wrong_count: Callable[[pa.csv.InvalidRow], str] | None = None,
    ) -> pa.RecordBatch:
        """Returns the columns of `types` from whole lines.

        Raises:
            pa.ArrowInvalid: a value does not fit its type; or a line has a wrong number of fields
                and there is no `on_wrong_count`.
        """
        schema = pa.schema(list(types.items()))
        if not data.strip():
            return pa.RecordBatch.from_pylist([], schema=schema)
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(
                column_names=self.names, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char='"' if self.quoted else False,
                invalid_row_handler=on_wrong_count,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                check_utf8=False,
                null_values=[""],
                strings_can_be_null=False,
            ),
        )
        pieces = table.combine_chunks().to_batches()
        return pieces[0] if pieces else pa.RecordBatch.from_pylist([], schema=schema)

    def _trim(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.trimmed:
            return batch
        arrays = [
            pc.ascii_trim_whitespace(values) if pa.types.is_string(values.type) else values
            for values in batch.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def convert(text: pa.Array, column: Column) -> tuple[pa.Array, Bools, str]:
    """Returns a column's values [B], bool [B] where they are bad, and the legal values as text."""
    if column.kind is ColumnKind.NUMBER:
        return *text_values.to_numbers(text), _EXPECTED[column.kind]
    if column.kind is ColumnKind.WEIGHT:
        return *text_values.to_weights(text), "a weight, a finite number of at least 0"
    if column.kind is ColumnKind.INTEGER:
        return *text_values.to_integers(text), _EXPECTED[column.kind]
    if column.kind is ColumnKind.INTEGERS and column.separator is not None:
        bad = text_values.bad_integer_lists(text, column.separator)
        return text, bad, f"64-bit integers separated by {column.separator!r}; {_TEXTS}"
    return text, np.zeros(len(text), dtype=np.bool_), "text"


def first_wrong(raw: pa.RecordBatch, wrong: list[tuple[str, Bools, str]], row: int) -> str:
    """Returns the error text of a row: its first bad column, the text and the legal values."""
    name, expected = next((name, expected) for name, bad, expected in wrong if bad[row])
    text = raw.column(name).slice(row, 1).cast(pa.binary())[0].as_py()
    return f"{name} is {shown(_decode(text))}, not {expected}"


def _skip_blank(row: pa.csv.InvalidRow) -> str:
    return "error" if row.text.strip() else "skip"


def _are_weights(values: pa.Array) -> bool:
    numbers = values.to_numpy(zero_copy_only=False)
    return bool(np.all((numbers >= 0) & np.isfinite(numbers)))


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")
