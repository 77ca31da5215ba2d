"""`EventColumns`: what is read from an event, and what becomes of it. N events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import LISTS, Column, ColumnKind, columns_of
from hotrow.trainer.data.libsvm import WEIGHTS_SUFFIX
from hotrow.trainer.data.malformed import shown
from hotrow.trainer.online.event_times import LEGAL, Times, event_times, missing

Problems = dict[int, str]
"""Index of an event -> why it is bad."""


@dataclass(frozen=True)
class EventColumns:
    """The columns of an event.

    With a join key, rows and labels come apart: an event whose label is missing or null is a row,
    any other is a label.

    Attributes:
        columns: those of the training rows, as a data file of the run has them.
        label: the label's column.
        positive: see `data.positive`.
        time: column of the event time; None: it is the time at which the source received it.
        key: column that joins rows and labels; None: each event has its label.
    """

    columns: tuple[Column, ...]
    label: str
    positive: str | None = None
    time: str | None = None
    key: str | None = None

    @property
    def parsed_label(self) -> str | None:
        """The label that parsers read and check; None: `to_parse` has it as a text."""
        return self.label if self.key is None else None

    @property
    def to_parse(self) -> tuple[Column, ...]:
        """The columns that parsers read, besides `parsed_label`."""
        if self.key is None:
            time = () if self.time is None else (Column(self.time, ColumnKind.TEXT),)
            return (*self.columns, *time)
        # A label has no weight, so the check of weights waits for `finish`.
        columns = [
            Column(column.name, ColumnKind.TEXT) if column.kind is ColumnKind.WEIGHT else column
            for column in self.columns
        ]
        texts = tuple(name for name in (self.time, self.key, self.label) if name is not None)
        return (*columns, *(Column(name, ColumnKind.TEXT) for name in texts))

    @property
    def names(self) -> list[str]:
        """Names of the finished columns: the key if rows wait for labels, the label, the rest."""
        key = [] if self.key is None else [self.key]
        return [*key, self.label, *(column.name for column in self.columns)]

    def finish(
        self, parsed: pa.RecordBatch, received: Times
    ) -> tuple[pa.RecordBatch, Times, Problems]:
        """Returns the finished rows [N] with the columns `names`, their times [N], and bad ones.

        The bad ones are among the rows, with any values. With a key, labels are null for rows.

        Args:
            parsed: N events: `parsed_label` if there is one, and `to_parse`.
            received: float64 [N], Unix seconds.
        """
        problems: Problems = {}
        arrays = dict(zip(parsed.schema.names, parsed.columns, strict=True))
        times = received
        if self.time is not None:
            times = event_times(arrays[self.time])
            _add(problems, np.isnan(times), self.time, arrays[self.time], LEGAL)
        if self.key is not None:
            _add(problems, missing(arrays[self.key]), self.key, arrays[self.key], "a key")
            is_row = missing(arrays[self.label])
            self._finish_labels(arrays, is_row, problems)
            self._finish_weights(arrays, is_row, problems)
        extra = [name for name in parsed.schema.names if name.endswith(WEIGHTS_SUFFIX)]
        names = self.names + [name for name in extra if name not in self.names]
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)
        return rows, times, problems

    def _finish_labels(
        self, arrays: dict[str, pa.Array], is_row: text_values.Bools, problems: Problems
    ) -> None:
        # A row has no text here; it would be looked for as a bad one.
        text = pc.if_else(pa.array(is_row), "0", arrays[self.label])
        labels, bad = text_values.to_labels(text, self.positive)
        expected = text_values.expected_label(self.positive)
        _add(problems, bad, self.label, text, expected)
        arrays[self.label] = pc.if_else(pa.array(is_row), pa.scalar(None, pa.float32()), labels)

    def _finish_weights(
        self, arrays: dict[str, pa.Array], is_row: text_values.Bools, problems: Problems
    ) -> None:
        for column in self.columns:
            if column.kind is ColumnKind.WEIGHT:
                text = arrays[column.name]
                weights, bad = text_values.to_weights(text)
                expected = "a weight, a finite number of at least 0"
                _add(problems, bad & is_row, column.name, text, expected)
                arrays[column.name] = weights.fill_null(0.0)


def _add(
    problems: Problems, bad: text_values.Bools, name: str, text: pa.Array, expected: str
) -> None:
    for index in np.flatnonzero(bad).tolist():
        problems.setdefault(index, f"{name} is {shown(str(text[index].as_py()))}, not {expected}")


def columns_of_events(config: RunConfig) -> EventColumns:
    """Returns what a run reads from its events.

    Raises:
        InvalidArgumentError: a column has two meanings, or the format has no such columns.
    """
    data, online = config.data, config.online
    columns = columns_of(config.features, data.format)
    if data.weight is not None:
        columns = (*columns, Column(data.weight, ColumnKind.WEIGHT))
    key = None if online.join is None else online.join.key
    used = {column.name: "a feature" for column in columns} | {data.label: "the label"}
    if data.weight is not None:
        used[data.weight] = "the weight"
    for option, name in (("online.time", online.time), ("online.join.key", key)):
        if name in used:
            raise InvalidArgumentError(
                f"{option}: column {name!r} is {used[name]}, too; give the events a column of its "
                "own for it"
            )
        if name is not None:
            used[name] = option
    if online.format == "data":
        _require_columns_of_lines(config, key, columns)
    elif data.weights:
        raise InvalidArgumentError(
            "data.weights: JSON events have ids without weights; set online.format: data, or "
            "leave data.weights out"
        )
    return EventColumns(columns, data.label, data.positive, online.time, key)


def _require_columns_of_lines(
    config: RunConfig, key: str | None, columns: tuple[Column, ...]
) -> None:
    """Checks that lines of the format can have the columns."""
    data = config.data
    if data.format in ("criteo", "libsvm"):
        for option, name in (("online.time", config.online.time), ("online.join.key", key)):
            if name is not None:
                raise InvalidArgumentError(
                    f"{option}: a line of format {data.format!r} has no column {name!r}; set "
                    "online.format: json, or leave it out"
                )
    lists = [column.name for column in columns if column.kind in LISTS]
    if lists and data.format != "libsvm":
        raise InvalidArgumentError(
            f"online.format: 'data' is lines of text, which hold no lists, but column "
            f"{lists[0]!r} has lists; set online.format: json"
        )
