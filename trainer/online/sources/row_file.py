"""`RowFile`: the events of a file that does not change, in any format of data files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hotrow.config import DataConfig
from hotrow.trainer.data.malformed import CollectedProblems
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.data.row_skip import RowSkip
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offsets
from hotrow.trainer.online.records import Parsed


class RowFile:
    """Reads a file from any row on. An offset is `{"row": r, "bad": b, "end": e}`.

    r is the number of rows that the reader of the format gave, b the number of lines that it
    refused, so that these are not reported again, and e is whether nothing follows.
    """

    def __init__(
        self, path: Path, data: DataConfig, decoder: Decoder, dead_letters: DeadLetters
    ) -> None:
        """Opens the file.

        Args:
            path: the file: text, plain or compressed, or Parquet.
            data: its format.
            decoder: of the run.
            dead_letters: for bad rows.

        Raises:
            NotFoundError, InvalidArgumentError, DataError: as `open_data`.
        """
        columns = decoder.columns
        # With a join key, the label is a column like others: rows have none.
        joined = columns.key is not None
        data = data.model_copy(update={"label": None} if joined else {})
        self._path = path
        self._decoder = decoder
        self._dead_letters = dead_letters
        self._data = data
        self._columns = columns.to_parse
        self._require_labels = not joined
        self._open()

    def _open(self) -> None:
        self._file = open_data(
            self._path,
            # With the policy `fail` the reader counts the rows of an earlier pass, at once.
            self._data.model_copy(update={"on_malformed": "fail"}),
            columns=self._columns,
            require_labels=self._require_labels,
        )

    def chunks(self, offset: dict[str, int] | None) -> Iterator[Chunk]:
        """Yields the events from an offset on.

        Args:
            offset: see the class; None: the beginning.

        Raises:
            DataError: the file cannot be read.
            UnavailableError: the dead letters cannot be written.
        """
        row, bad = (0, 0) if offset is None else (offset["row"], offset["bad"])
        file = self._file
        if bad:  # these lines are among the rows that were read, so each is looked at
            file = open_data(
                self._path,
                self._data.model_copy(update={"on_malformed": "skip"}),
                columns=self._columns,
                require_labels=self._require_labels,
            )
        log = CollectedProblems()
        for rows in file.rows(RowSkip(row), log):
            bad = self._report(log, bad)
            count = rows.num_rows
            decoded = self._decoder.finish(
                Parsed(rows, np.arange(count), {}),
                np.full(count, time.time()),
                self._event_at(row),
            )
            yield Chunk(
                decoded.events,
                Offsets((decoded.kept + row + 1).tolist(), partial(_offset, bad=bad)),
                _offset(row + count, bad),
            )
            row += count
        bad = self._report(log, bad)
        yield Chunk(self._decoder.no_events(), (), _offset(row, bad, end=True))

    def _report(self, log: CollectedProblems, reported: int) -> int:
        """Writes new bad lines to the dead letters; returns how many were reported so far."""
        for problem in log.problems[reported:]:
            place = {"file": str(self._path), "line": problem.line}
            self._dead_letters.add("bad", problem.what, place, None)
        return max(reported, len(log.problems))

    def _event_at(self, first_row: int) -> Callable[[int], tuple[Any, bytes | None]]:
        return lambda index: ({"file": str(self._path), "row": first_row + index + 1}, None)


def _offset(row: int, bad: int, end: bool = False) -> dict[str, Any]:
    return {"row": row, "bad": bad, "end": end}
