"""Durations by bucket."""

from __future__ import annotations

from hotrow.trainer.online.admin.seconds_histogram import SecondsHistogram


def test_durations_are_counted_at_their_inclusive_bounds() -> None:
    histogram = SecondsHistogram()
    for seconds in (-1.0, 0.01, 0.011, 1.0, 1e4):
        histogram.observe(seconds)
    message = histogram.message()
    by_bound = dict(zip([*message.bounds, None], message.buckets, strict=True))
    assert {bound: count for bound, count in by_bound.items() if count} == {
        0.01: 2,
        0.02: 1,
        1.0: 1,
        None: 1,
    }
    assert message.sum == 0.01 + 0.011 + 1.0 + 1e4
