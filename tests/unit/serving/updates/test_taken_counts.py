"""What is counted of the cuts that a version took."""

from __future__ import annotations

from hotrow.serving.monitoring.metrics import prometheus_text
from hotrow.serving.updates.taken_counts import TakenCounts
from hotrow.store.cuts import CutRecord


def _cut(seq: int, committed_ms: int = 0, event_ms: int = 0) -> CutRecord:
    return CutRecord(
        generation="g",
        epoch=1,
        seq=seq,
        step=seq,
        clocks=(),
        dense_sha256="",
        rows=10,
        removed=2,
        places=(),
        bytes=1000,
        committed_ms=committed_ms,
        event_ms=event_ms,
    )


def _samples(counts: TakenCounts) -> dict[str, float]:
    lines = [line for line in prometheus_text(counts.families()).splitlines() if line[0] != "#"]
    return {
        name.partition("{")[0]: float(value)
        for name, _, value in (x.rpartition(" ") for x in lines)
    }


def test_lag_is_counted_by_the_clock_of_the_store() -> None:
    counts = TakenCounts()
    counts.take("m", 1, [_cut(1, 1000, 400), _cut(2, 1500)], missed=False, shown_ms=1750.0)
    found = _samples(counts)
    assert found["hotrow_cut_visible_seconds_count"] == 2
    assert found["hotrow_cut_visible_seconds_sum"] == 1.0
    assert found["hotrow_event_visible_seconds_count"] == 1, "the second has no events"
    assert found["hotrow_event_visible_seconds_sum"] == 1.35
    page = prometheus_text(counts.families())
    assert 'hotrow_cut_visible_seconds_bucket{model_name="m",version="1",le="0.3"} 1' in page


def test_times_of_other_clocks_are_never_negative() -> None:
    counts = TakenCounts()
    counts.take("m", 1, [_cut(1, 2000, 9000)], missed=False, shown_ms=1000.0)
    found = _samples(counts)
    assert found["hotrow_cut_visible_seconds_sum"] == 0.0
    assert found["hotrow_event_visible_seconds_sum"] == 0.0


def test_a_lag_that_is_not_known_is_left_out() -> None:
    counts = TakenCounts()
    counts.take("m", 1, [_cut(1, 1000, 900), _cut(2)], missed=True, shown_ms=None)
    counts.take("m", 1, [_cut(3)], missed=False, shown_ms=5000.0)
    found = _samples(counts)
    assert "hotrow_cut_visible_seconds_count" not in found
    assert found["hotrow_cuts_taken_total"] == 2
    assert found["hotrow_cuts_coalesced_total"] == 1
    assert found["hotrow_cut_gaps_total"] == 1
    assert found["hotrow_cut_rows_taken_total"] == 36
    assert found["hotrow_cut_bytes_taken_total"] == 3000
