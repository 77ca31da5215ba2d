"""`LineParser`: events that are lines in the format of the section `data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, DataConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.arrow_rows import join_rows
from hotrow.trainer.data.columns import require_present
from hotrow.trainer.data.delimited import DelimitedSource
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.guess.dialect import fields_of
from hotrow.trainer.data.libsvm import LibsvmSource
from hotrow.trainer.data.lines import LineBlock
from hotrow.trainer.data.malformed import CollectedProblems
from hotrow.trainer.online.event_columns import EventColumns
from hotrow.trainer.online.records import Parsed

_NO_FILE = Path("event")


class LineParser:
    """Parses lines by the readers of data files."""

    def __init__(self, columns: EventColumns, data: DataConfig, header: str | None = None) -> None:
        """Binds the format.

        Args:
            columns: what to read.
            data: the format.
            header: a CSV's header line, if `needs_header`.

        Raises:
            InvalidArgumentError: a column is not in the lines.
            DataError: the header names a column twice.
        """
        self._source: DelimitedSource | LibsvmSource
        if data.format == "libsvm":
            self._source = LibsvmSource(_NO_FILE, columns.columns[0], columns.label, data.weights)
            return
        is_csv = data.format == "csv"
        delimiter = "\t" if data.format == "criteo" else data.delimiter or ","
        names = [columns.label, *CRITEO_DENSE, *CRITEO_SPARSE]
        if is_csv:
            names = list(data.columns or ())
            if header is not None:
                names = fields_of(header, delimiter)
                if len(set(names)) != len(names):
                    raise DataError(f"the header {header!r} names a column twice")
            require_present(columns.to_parse, names, "an event")
            if columns.label not in names:
                raise InvalidArgumentError(
                    f"an event has no label column {columns.label!r}; it has: {', '.join(names)}; "
                    "set data.label"
                )
        self._source = DelimitedSource(
            path=_NO_FILE,
            names=tuple(names),
            columns=columns.to_parse,
            label=columns.parsed_label,
            positive=columns.positive,
            delimiter=delimiter,
            header=False,
            quoted=is_csv,
            trimmed=is_csv,
            text_labels=is_csv,
        )

    def parse(self, payloads: Sequence[bytes]) -> Parsed:
        """See `Parser`."""
        problems = {
            index: "holds a line end, so it is not one line"
            for index, payload in enumerate(payloads)
            if b"\n" in payload or b"\r" in payload
        }
        whole = [index for index in range(len(payloads)) if index not in problems]
        rows, kept = self._rows([payloads[index] for index in whole], problems, whole)
        return Parsed(rows, np.array(kept, dtype=np.int64), problems)

    def _rows(
        self, lines: list[bytes], problems: dict[int, str], indices: list[int]
    ) -> tuple[pa.RecordBatch, list[int]]:
        """Returns the rows of lines with their indices, and adds the other lines' problems."""
        log = CollectedProblems()
        block = LineBlock(b"\n".join(lines), 0)
        if isinstance(self._source, LibsvmSource):
            batches = self._source.block_rows(block, log)
            rows = join_rows(batches) if batches else None
        else:
            rows = self._source.block_rows(block, log)
        bad = {problem.line: problem.what for problem in log.problems}
        legal = [i for i in range(len(lines)) if i not in bad]
        if rows is not None and rows.num_rows == len(legal):
            problems |= {indices[i]: what for i, what in bad.items()}
            return rows, [indices[i] for i in legal]
        if len(lines) <= 1:  # a line without any value
            problems |= dict.fromkeys(indices, "is an empty line")
            return self._none(), []
        half = len(lines) // 2
        halves = [
            self._rows(lines[part], problems, indices[part])
            for part in (slice(0, half), slice(half, None))
        ]
        filled = [one for one in halves if one[0].num_rows] or halves[:1]
        return join_rows([one for one, _ in filled]), [i for _, kept in halves for i in kept]

    def _none(self) -> pa.RecordBatch:
        """Returns no rows, with the columns."""
        if isinstance(self._source, LibsvmSource):
            one = self._source.block_rows(LineBlock(b"0 0:0", 0), CollectedProblems())
            return join_rows(one).slice(0, 0)
        return self._source.block_rows(LineBlock(b"", 0), CollectedProblems())


def needs_header(data: DataConfig) -> bool:
    """Returns whether lines can be read only with the header line of their file."""
    return data.format == "csv" and data.columns is None
