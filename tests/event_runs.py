"""Runs of events for tests: a configuration, events, and what a stream makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import wait_until

from hotrow.config import RunConfig, parse_config
from hotrow.errors import HotrowError
from hotrow.trainer.online.source import EventStream, Position, TrainingEvents
from hotrow.trainer.online.stream import open_stream

START = 1_700_000_000


def config(source: str = "file:events", batch_size: int = 3, **options: Any) -> RunConfig:
    """Returns a run with a number, a text and a key; `data__x` sets `data.x`, others `online`."""
    data: dict[str, Any] = {"format": "csv", "train": "none.csv", "label": "click"}
    data["batch_size"] = batch_size
    online = {"source": source, "time": "ts"}
    for name, value in options.items():
        section, _, key = name.rpartition("__")
        (data if section == "data" else online)[key] = value
    features = {
        "dense": [{"columns": ["price"]}],
        "sparse": [
            {"columns": ["user"], "dim": 4, "hash": True},
            {"columns": ["item"], "dim": 4, "hash": False},
        ],
    }
    raw = {"name": "clicks", "data": data, "features": features, "model": {"arch": "logistic"}}
    return parse_config(raw | {"online": online}, source="test")


def event(number: int, **values: Any) -> dict[str, Any]:
    """Returns an event whose item is its number; its time is that many seconds after `START`."""
    return {
        "click": number % 2,
        "user": f"u{number % 5}",
        "item": number,
        "price": number / 10,
        "ts": START + number,
    } | values


def lines(*events: Any) -> str:
    """Returns events as lines of JSON; texts as they are."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in events]
    return "".join(f"{text}\n" for text in texts)


class Reader:
    """An open stream and what it gave."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.batches: list[TrainingEvents] = []

    @property
    def items(self) -> list[int]:
        """The items of all rows so far."""
        return [item for batch in self.batches for item in batch.rows.column("item").to_pylist()]

    def read(self, rows: int) -> list[int]:
        """Reads until there are so many rows; returns their items."""
        wait_until(lambda: len(self.items) >= rows or self._has(rows), lambda: self.items)
        return self.items

    def read_to_end(self) -> list[int]:
        """Reads until the source ends; returns the items."""
        while (batch := self.stream.next(30.0)) is not None:
            if batch.rows.num_rows:
                self.batches.append(batch)
        return self.items

    def trouble(self) -> str:
        """Returns why the lag is not known; "": it is, or was not asked for yet."""
        try:
            self.stream.lag()
        except HotrowError as err:
            return str(err)
        return ""

    def _has(self, rows: int) -> bool:
        batch = self.stream.next(0.1)
        assert batch is not None, "the source has ended"
        if batch.rows.num_rows:
            self.batches.append(batch)
        return len(self.items) >= rows


@contextmanager
def reading(
    run: RunConfig,
    dead_letters: Path,
    position: Position | None = None,
    reports: Any = None,
    **options: Any,
) -> Iterator[Reader]:
    """Opens a stream from a position, and closes it."""
    report = (lambda line: None) if reports is None else reports.append
    stream = open_stream(run, dead_letters, position or {}, report, **options)
    try:
        yield Reader(stream)
    finally:
        stream.close()


def letters(path: Path) -> list[dict[str, Any]]:
    """Returns the dead letters of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
