"""Columns that no event has are reported once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from event_runs import config, event, lines, reading

from hotrow.trainer.online import unseen_columns
from hotrow.trainer.online.unseen_columns import UnseenColumns


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(*values) for name, values in columns.items()})


def test_each_kind_of_value_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_columns, "CHECKED_EVENTS", 4)
    missing = {
        "number": ([None, float("nan")], pa.float32()),
        "key": ([None, None], pa.int64()),
        "text": (["", ""], pa.string()),
        "list": ([[], []], pa.list_(pa.int64())),
    }
    there = {
        "number": ([None, 0.0], pa.float32()),
        "key": ([None, 0], pa.int64()),
        "text": (["", "x"], pa.string()),
        "list": ([[], [1]], pa.list_(pa.int64())),
    }
    for name in missing:
        reports: list[str] = []
        unseen = UnseenColumns(list(missing), reports.append)
        unseen.look(rows(**missing))
        assert reports == []
        unseen.look(rows(**missing | {name: there[name]}))
        unseen.look(rows(**missing))
        others = ", ".join(other for other in missing if other != name)
        assert reports == [
            f"the first 4 events have no value in {others}; are these the events' names of the "
            "columns?"
        ]


def test_a_stream_reports_a_wrong_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_columns, "CHECKED_EVENTS", 3)
    log = tmp_path / "events"
    log.write_text(lines(*(event(i, user=None, usr="x") for i in range(3))))
    reports: list[str] = []
    with reading(config(f"file:{log}"), tmp_path / "dead", reports=reports) as reader:
        reader.read(3)
    assert len(reports) == 1
    assert "no value in user; are these" in reports[0]
