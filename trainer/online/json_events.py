"""`JsonParser`: events that are JSON objects of column names and values.

Blocks are parsed at once by Arrow, with the types that the first values have. A block with any
problem is halved, and small ones are parsed event by event, which finds the bad ones. Both ways
give the same rows, and those are what a file with the same texts gives: a number is converted from
its digits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from hotrow.trainer.data import text_values
from hotrow.trainer.data.arrow_rows import join_rows
from hotrow.trainer.data.columns import LISTS, Column, ColumnKind
from hotrow.trainer.data.delimited import EXPECTED_IDS, convert
from hotrow.trainer.data.malformed import shown
from hotrow.trainer.data.parquet_lists import read_lists
from hotrow.trainer.online.event_columns import EventColumns
from hotrow.trainer.online.event_times import LEGAL, event_times, to_text
from hotrow.trainer.online.records import Parsed

_NUMBERS = (ColumnKind.NUMBER, ColumnKind.WEIGHT)
_LEARNED_EVENTS = 64
_SLOW_EVENTS = 64


class _Digits(str):
    """A number of JSON, as it is written."""


class JsonParser:
    """Parses JSON objects; other columns in them are ignored, missing ones are null."""

    def __init__(self, columns: EventColumns) -> None:
        """Binds the columns to read."""
        self._columns = columns.to_parse
        self._label = columns.parsed_label
        self._positive = columns.positive
        self._time = columns.time
        names = [column.name for column in self._columns]
        self._names = names if self._label is None else [self._label, *names]
        self._types: dict[str, pa.DataType] = {}

    def parse(self, payloads: Sequence[bytes]) -> Parsed:
        """See `Parser`."""
        rows = self._fast(payloads) if payloads else None
        if rows is not None:
            return Parsed(rows, np.arange(len(payloads)), {})
        if len(payloads) <= _SLOW_EVENTS:
            return self._slow(payloads)
        half = len(payloads) // 2  # most events are good, so most halves are fast
        first, second = self.parse(payloads[:half]), self.parse(payloads[half:])
        filled = [one.rows for one in (first, second) if one.rows.num_rows] or [first.rows]
        problems = {half + index: what for index, what in second.problems.items()}
        kept = np.concatenate([first.kept, second.kept + half])
        return Parsed(join_rows(filled), kept, first.problems | problems)

    def _fast(self, payloads: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of events without any problem; None: there may be one."""
        data = b"\n".join(payloads)
        if not _is_text(data) or not all(
            one[:1] == b"{" and one[-1:] == b"}" and b"\n" not in one for one in payloads
        ):
            return None
        table = self._read(data)
        if table is None:  # with types of another block, perhaps
            self._learn_types(payloads[:_LEARNED_EVENTS])
            table = self._read(data)
        if table is None or table.num_rows != len(payloads):
            return None
        stored = table.combine_chunks().to_batches()[0]
        arrays = [] if self._label is None else [self._labels(stored.column(self._label))]
        for column in self._columns:
            values = stored.column(column.name)
            if column.name == self._time:
                arrays.append(_fast_times(values))
            else:
                arrays.append(_fast_values(values, column))
        if any(values is None for values in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _read(self, data: bytes) -> pa.Table | None:
        """Returns the columns of `data` with the types of `_types`; None: they do not fit."""
        if not self._types:
            return None
        options = pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        schema = pa.schema(list(self._types.items()))
        parse = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            return pa.json.read_json(
                pa.BufferReader(data), read_options=options, parse_options=parse
            )
        except pa.ArrowException:
            return None

    def _learn_types(self, payloads: Sequence[bytes]) -> None:
        """Sets the types of the columns to those of the first values in some events."""
        events = [event for event in map(_event_of, payloads) if isinstance(event, dict)]
        if not events:
            return
        for name, column in zip(self._names, self._columns_with_label(), strict=True):
            values = (event.get(name) for event in events)
            value = next((value for value in values if value is not None), None)
            if value is not None or name not in self._types:
                self._types[name] = self._type_of(column, name, value)

    def _type_of(self, column: Column | None, name: str, value: Any) -> pa.DataType:
        """Returns the type to read a column with that has a value; None: it has none."""
        if name == self._time and isinstance(value, _Digits):
            return pa.float64()
        if column is None:
            return _scalar_type(value)
        if column.kind in LISTS:
            first = value[0] if isinstance(value, list) and value else None
            if first is None:
                return pa.list_(pa.string() if column.kind is ColumnKind.TEXTS else pa.int64())
            return pa.list_(_scalar_type(first))
        if column.kind in _NUMBERS and not _is_quoted(value):
            return pa.float32()
        if column.kind is ColumnKind.INTEGER and value is None:
            return pa.int64()
        return _scalar_type(value)

    def _labels(self, stored: pa.Array) -> pa.Array | None:
        labels, bad = text_values.to_labels(to_text(stored), self._positive)
        return None if bad.any() else labels

    def _slow(self, payloads: Sequence[bytes]) -> Parsed:
        """Returns the rows of the legal events, and what is wrong with the others."""
        problems: dict[int, str] = {}
        texts: dict[str, list[Any]] = {name: [] for name in self._names}
        kept = []
        for index, payload in enumerate(payloads):
            values = self._texts_of(payload)
            if isinstance(values, str):
                problems[index] = values
                continue
            kept.append(index)
            for name, value in values.items():
                texts[name].append(value)
        arrays = []
        bad_rows = np.zeros(len(kept), dtype=np.bool_)
        for name, column in zip(self._names, self._columns_with_label(), strict=True):
            values, bad, expected = self._converted(name, texts[name], column)
            arrays.append(values)
            for row in np.flatnonzero(bad).tolist():
                reason = f"{name} is {shown(str(texts[name][row]))}, not {expected}"
                problems.setdefault(kept[row], reason)
            bad_rows |= bad
        rows = pa.RecordBatch.from_arrays(arrays, names=self._names)
        legal = ~bad_rows
        return Parsed(rows.filter(pa.array(legal)), np.array(kept, dtype=np.int64)[legal], problems)

    def _columns_with_label(self) -> list[Column | None]:
        return [*([] if self._label is None else [None]), *self._columns]

    def _converted(
        self, name: str, texts: list[Any], column: Column | None
    ) -> tuple[pa.Array, text_values.Bools, str]:
        """Returns values of a column, where they are bad, and what they must be."""
        if column is None:
            labels, bad = text_values.to_labels(pa.array(texts, pa.string()), self._positive)
            return labels, bad, text_values.expected_label(self._positive)
        if column.kind in LISTS:
            lists, bad = read_lists(pa.array(texts, pa.list_(pa.string())), column.kind)
            return lists, bad, EXPECTED_IDS
        if name == self._time:
            times = event_times(pa.array(texts, pa.string()))
            return pa.array(times), np.isnan(times), LEGAL
        return convert(pa.array(texts, pa.string()), column)

    def _texts_of(self, payload: bytes) -> dict[str, Any] | str:
        """Returns the texts of an event by column; or why it is bad."""
        event = _event_of(payload)
        if isinstance(event, str):
            return event
        values: dict[str, Any] = {}
        for name, column in zip(self._names, self._columns_with_label(), strict=True):
            value = event.get(name)
            is_list = column is not None and column.kind in LISTS
            if isinstance(value, dict) or (
                value is not None and isinstance(value, list) != is_list
            ):
                return f"{name} is {_kind(value)}, not {'a list' if is_list else 'one value'}"
            if is_list:
                if any(isinstance(item, list | dict) for item in value or []):
                    return f"{name} has a list or object in its list, not texts or numbers"
                values[name] = [None if item is None else _text(item) for item in value or []]
            else:
                values[name] = _text(value)
        return values


def _event_of(payload: bytes) -> dict[str, Any] | str:
    """Returns the values of an event, numbers as their digits; or why there is none."""
    try:
        event = json.loads(
            payload.decode(), parse_int=_Digits, parse_float=_Digits, parse_constant=_Digits
        )
        if b"\\ud" in payload.lower():  # half a surrogate pair is no text
            json.dumps(event, ensure_ascii=False).encode()
    except UnicodeError:
        return "is not UTF-8 text"
    except (ValueError, RecursionError) as err:
        return f"is not JSON: {err}"
    if not isinstance(event, dict):
        return f"is {_kind(event)}, not an object of columns and values"
    return event


def _kind(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "null" if value is None else "one value"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_quoted(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _Digits)


def _scalar_type(value: Any) -> pa.DataType:
    if isinstance(value, _Digits):
        # Digits of an integer come back from int64 as they are; others go the exact way.
        return pa.int64()
    return pa.bool_() if isinstance(value, bool) else pa.string()


def _fast_times(stored: pa.Array) -> pa.Array | None:
    """Returns times as seconds or milliseconds; None: one may be bad."""
    times = event_times(to_text(stored) if pa.types.is_string(stored.type) else stored)
    return None if np.isnan(times).any() else pa.array(times)


def _fast_values(stored: pa.Array, column: Column) -> pa.Array | None:
    """Returns the values of a column; None: one may be bad."""
    if column.kind in LISTS:
        values, bad = read_lists(stored, column.kind)
        return None if bad.any() else values
    if column.kind in _NUMBERS and pa.types.is_floating(stored.type):
        numbers = stored.to_numpy(zero_copy_only=False)
        legal = ~np.isinf(numbers)
        if column.kind is ColumnKind.WEIGHT:
            legal = (numbers >= 0) & np.isfinite(numbers)
        return stored if legal.all() else None
    if column.kind is ColumnKind.INTEGER and pa.types.is_integer(stored.type):
        return stored
    if pa.types.is_boolean(stored.type):
        stored = pc.if_else(stored, "true", "false")
    values, bad, _ = convert(to_text(stored), column)
    return None if bad.any() else values
