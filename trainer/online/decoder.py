"""`Decoder`: rows and times of a partition's events; bad events go to the dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.event_columns import columns_of_events
from hotrow.trainer.online.event_times import Times
from hotrow.trainer.online.json_events import JsonParser
from hotrow.trainer.online.line_events import LineParser, needs_header
from hotrow.trainer.online.records import Parsed, Parser, Records
from hotrow.trainer.online.source import Events
from hotrow.trainer.online.unseen_columns import UnseenColumns


@dataclass(frozen=True, eq=False)
class Decoded:
    """The good ones of N events.

    Attributes:
        events: M events, with the columns `EventColumns.names`.
        kept: int64 [M], their indices among the N.
    """

    events: Events
    kept: npt.NDArray[np.int64]


class Decoder:
    """Decodes the events of a run.

    Attributes:
        columns: what is read from an event.
    """

    def __init__(
        self, config: RunConfig, dead_letters: DeadLetters, report: Callable[[str], None]
    ) -> None:
        """Binds a run.

        Args:
            config: the run's configuration.
            dead_letters: for bad events.
            report: called with a line for who runs the trainer.

        Raises:
            InvalidArgumentError: the format has no such columns.
        """
        self.columns = columns_of_events(config)
        self._data = config.data
        self._dead_letters = dead_letters
        names = [column.name for column in self.columns.columns]
        self._unseen = UnseenColumns(names, report)
        self.needs_header = config.online.format == "data" and needs_header(config.data)
        self._parsers: dict[bytes, Parser] = {}
        self._nothing: Events | None = None
        if config.online.format == "json":
            self._parsers[b""] = JsonParser(self.columns)
        elif not self.needs_header:
            self._parsers[b""] = LineParser(self.columns, config.data)

    def require_no_header(self, source: str) -> None:
        """Checks that events need no header line, because the source has none.

        Raises:
            InvalidArgumentError: they do.
        """
        if self.needs_header:
            raise InvalidArgumentError(
                f"data.columns: the lines of {source} have no header; name their columns"
            )

    def decode(self, records: Records, header: bytes = b"") -> Decoded:
        """Returns the good ones of some events.

        Args:
            records: N events.
            header: the header line of their file, if `needs_header`.

        Raises:
            InvalidArgumentError, DataError: the header lacks a column.
            UnavailableError: the dead letters cannot be written.
        """
        if header not in self._parsers:
            self._parsers[header] = LineParser(self.columns, self._data, header.decode())
        if not len(records.payloads):
            return Decoded(self.no_events(), np.zeros(0, dtype=np.int64))
        parsed = self._parsers[header].parse(records.payloads)
        for index, reason in sorted(parsed.problems.items()):
            self._dead_letters.add("bad", reason, records.place(index), records.payloads[index])
        return self.finish(
            parsed,
            records.received,
            lambda index: (records.place(index), records.payloads[index]),
        )

    def finish(
        self, parsed: Parsed, received: Times, event: Callable[[int], tuple[Any, bytes | None]]
    ) -> Decoded:
        """Returns the good ones of parsed events.

        Args:
            parsed: M of N events.
            received: float64 [N], when the source received each.
            event: returns the place and the bytes of one of the N.

        Raises:
            UnavailableError: as `decode`.
        """
        kept = parsed.kept
        rows, times, problems = self.columns.finish(parsed.rows, received[kept])
        if problems:
            for index, reason in sorted(problems.items()):
                self._dead_letters.add("bad", reason, *event(int(kept[index])))
            good = np.ones(len(kept), dtype=np.bool_)
            good[list(problems)] = False
            rows, times, kept = rows.filter(pa.array(good)), times[good], kept[good]
        self._unseen.look(rows)
        return Decoded(Events(rows, times), kept)

    def no_events(self) -> Events:
        """Returns no events, with their columns."""
        if self._nothing is None:
            parsed = JsonParser(self.columns).parse([])
            self._nothing = self.finish(parsed, np.zeros(0), _no_event).events
        return self._nothing


def _no_event(index: int) -> tuple[Any, bytes | None]:
    raise IndexError(index)


def join_events(several: Sequence[Events]) -> Events:
    """Returns the events of one or more pieces, in order."""
    filled = [one for one in several if len(one.times)] or list(several[:1])
    if len(filled) == 1:
        return filled[0]
    rows = pa.Table.from_batches([one.rows for one in filled]).combine_chunks().to_batches()[0]
    return Events(rows, np.concatenate([one.times for one in filled]))
