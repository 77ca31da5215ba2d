"""Statistics of caches: what is summed, what is not known yet, and the line for people."""

from __future__ import annotations

import math

from hotrow.cache_statistics import CacheStatistics

STATISTICS = {
    "cache_slots": 512,
    "cache_hits": 30,
    "cache_misses": 10,
    "cache_prefetched": 1200,
    "cache_written_back": 3,
    "cache_stall_ns": 2_000_000,
    "cache_steps": 4,
    "rows": 9,
}


def test_rates_are_of_distinct_keys_and_stall_is_a_step() -> None:
    statistics = CacheStatistics.of(STATISTICS)
    assert statistics.as_dict() == {
        "cache_slots": 512,
        "cache_hit_rate": 0.75,
        "cache_rows_prefetched": 1200,
        "cache_written_back": 3,
        "cache_stall_ms": 0.5,
    }
    assert str(statistics) == "hit rate 75.0%, 1,200 rows prefetched, stall 0.50 ms a step"


def test_tables_together_have_one_rate_and_all_the_stall() -> None:
    other = CacheStatistics(1024, 0, 40, 0, 5, 6_000_000, 4)
    together = CacheStatistics.together([CacheStatistics.of(STATISTICS), other])
    assert together == CacheStatistics(1536, 30, 50, 1200, 8, 8_000_000, 4)
    assert together.hit_rate == 30 / 80
    assert together.stall_ms == 2.0


def test_what_is_not_known_yet_is_no_number() -> None:
    older = CacheStatistics.of({"rows": 5})
    assert older == CacheStatistics(0, 0, 0, 0, 0, 0, 0)
    assert math.isnan(older.hit_rate)
    assert math.isnan(older.stall_ms)
    assert str(older) == "hit rate -, 0 rows prefetched, stall - ms a step"
