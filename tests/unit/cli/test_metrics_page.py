"""Pages of metrics: what they say, and how they change."""

from __future__ import annotations

import math

import pytest

from hotrow.cli.metrics_page import parse_page, quantile
from hotrow.cli.status_servers import page_url, server_facts
from hotrow.errors import DataLossError

URL = "http://a:1/metrics"


def page(*lines: str, time: float = 0.0):
    """Returns a page that was read at a time."""
    parsed = parse_page("\n".join(lines) + "\n", URL)
    return type(parsed)(time, parsed.samples)


def requests(ok: int, failed: int = 0, refused: int = 0) -> list[str]:
    of = 'hotrow_requests_total{model_name="m",version="1"'
    return [
        f'{of},status="OK"}} {ok}',
        f'{of},status="UNAVAILABLE"}} {failed}',
        f'{of},status="INVALID_ARGUMENT"}} {refused}',
        'hotrow_requests_total{model_name="other",status="OK"} 99',
    ]


def latencies(*counts: int) -> list[str]:
    of = 'hotrow_request_latency_microseconds_bucket{model_name="m"'
    bounds = ["1000", "2000", "+Inf"]
    return [f'{of},le="{b}"}} {c}' for b, c in zip(bounds, counts, strict=True)]


@pytest.mark.parametrize(
    ("share", "counts", "expected"),
    [
        (0.5, [10, 10, 10], 0.5),
        (0.99, [0, 100, 100], 1.99),
        (0.99, [50, 98, 100], 2.0),  # above the last finite bound
        (0.5, [0, 0, 0], None),
    ],
    ids=["in the first bucket", "in the second", "in the last", "without values"],
)
def test_quantiles_are_those_of_prometheus(
    share: float, counts: list[int], expected: float | None
) -> None:
    buckets = dict(zip([1.0, 2.0, math.inf], map(float, counts), strict=True))
    found = quantile(share, buckets)
    assert found == (None if expected is None else pytest.approx(expected))


def test_counts_are_those_since_the_last_look() -> None:
    before = page(*requests(10, 1, 1), *latencies(10, 10, 10), time=100.0)
    after = page(*requests(18, 3, 4), *latencies(10, 18, 18), time=104.0)
    facts = server_facts(after, before, "m")
    assert (facts["requests"], facts["errors"]) == (13, 2)  # a refused request is the client's
    assert (facts["over_seconds"], facts["requests_per_second"]) == (4.0, 13 / 4)
    assert facts["p99_seconds"] == pytest.approx(1.99e-3)


def test_the_first_look_has_counts_since_the_start_and_no_rates() -> None:
    facts = server_facts(page(*requests(10, 1), *latencies(9, 9, 9)), None, "m")
    assert (facts["requests"], facts["errors"]) == (11, 1)
    assert (facts["over_seconds"], facts["requests_per_second"]) == (None, None)


def test_a_server_that_was_started_again_has_counted_from_zero() -> None:
    before = page(*requests(1000, 50), *latencies(10, 1000, 1000))
    after = page(*requests(4, 1), *latencies(4, 4, 4), time=1.0)
    facts = server_facts(after, before, "m")
    assert (facts["requests"], facts["errors"]) == (5, 1)
    assert facts["p99_seconds"] == pytest.approx(0.99e-3)


def test_the_newest_version_on_the_page_counts() -> None:
    lines = [
        'hotrow_cut_version{model_name="m",version="9"} 18',
        'hotrow_cut_version{model_name="m",version="10"} 255',
        'hotrow_cut_step{model_name="m",version="9"} 7',
        'hotrow_cut_step{model_name="m",version="10"} 8',
        'hotrow_cuts_are_stale{model_name="m",version="9"} 1',
    ]
    facts = server_facts(page(*lines), None, "m")
    assert (facts["version"], facts["cut"], facts["step"]) == (10, "00000000000000ff", 8)
    assert not facts["stale"]


def test_rows_of_cuts_in_memory_count_as_hits() -> None:
    of = '{model_name="m",table="t"}'
    lines = [
        f"hotrow_cache_hits_total{of} 60",
        f"hotrow_cache_misses_total{of} 40",
        f"hotrow_cut_rows_read_total{of} 30",
    ]
    assert server_facts(page(*lines), None, "m")["hit_rate"] == 0.9
    assert server_facts(page(), None, "m")["hit_rate"] is None


def test_what_is_no_page_is_an_error() -> None:
    with pytest.raises(DataLossError, match="http://a:1/metrics is no page of metrics"):
        parse_page("<html>not found</html>\n", URL)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("a:8501", "http://a:8501/monitoring/prometheus/metrics"),
        ("a:8501/metrics", "http://a:8501/metrics"),
        ("https://a:8501", "https://a:8501/monitoring/prometheus/metrics"),
        ("https://[::1]:8501/m/n", "https://[::1]:8501/m/n"),
    ],
)
def test_scheme_and_path_are_added_to_an_address(address: str, url: str) -> None:
    assert page_url(address) == page_url(url) == url
