"""Event time goes on by events alone; late events are trained or not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from event_runs import letters

from hotrow.config import OnlineConfig
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.source import Events
from hotrow.trainer.online.watermark import Watermark

TIMES = [100.0, 90.0, 105.0, 96.0, 95.0, 94.5, 120.0, 115.0]


def events(times: list[float]) -> Events:
    rows = pa.RecordBatch.from_pydict({"n": list(range(len(times)))})
    return Events(rows, np.array(times))


@pytest.mark.parametrize("cut", range(len(TIMES) + 1))
def test_late_events_go_to_the_dead_letters(tmp_path: Path, cut: int) -> None:
    dead = DeadLetters(tmp_path / "dead", 1 << 20, print)
    online = OnlineConfig(late_seconds=10.0, late="dead_letter")
    mark = Watermark(online, dead)
    kept = []
    for part in (TIMES[:cut], TIMES[cut:]):
        kept += mark.admit(events(part), {"at": 3}).events.times.tolist()
    dead.close()
    # 95 is 10 s older than 105, 94.5 is more.
    assert kept == [100.0, 90.0, 105.0, 96.0, 95.0, 120.0, 115.0]
    assert mark.newest == 120.0
    assert mark.late == 1
    (letter,) = letters(tmp_path / "dead")
    assert letter["kind"] == "late"
    assert letter["reason"] == "is 10.500 s older than the newest; online.late_seconds is 10"
    assert letter["place"] == {"read_from": {"at": 3}}
    assert letter["event"]["time"] == 94.5


def test_late_events_are_trained_by_default(tmp_path: Path) -> None:
    mark = Watermark(OnlineConfig(late_seconds=10.0), DeadLetters(tmp_path / "dead", 100, print))
    assert mark.admit(events(TIMES), {}).events.times.tolist() == TIMES
    assert mark.late == 1
    assert not (tmp_path / "dead").exists()


def test_events_that_are_read_again_are_not_counted(tmp_path: Path) -> None:
    online = OnlineConfig(late_seconds=10.0, late="dead_letter")
    mark = Watermark(online, DeadLetters(tmp_path / "dead", 100, print))
    assert len(mark.admit(events(TIMES), {}, again=True).events.times) == 7
    assert (mark.newest, mark.late) == (120.0, 0)
    assert not (tmp_path / "dead").exists()


def test_without_events_there_is_no_time(tmp_path: Path) -> None:
    mark = Watermark(OnlineConfig(late_seconds=0.0), DeadLetters(tmp_path / "dead", 100, print))
    assert mark.admit(events([]), {}).events.times.tolist() == []
    assert math.isnan(mark.newest)
    assert mark.admit(events([5.0]), {}).events.times.tolist() == [5.0]
