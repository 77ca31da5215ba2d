"""Families of metrics: buckets, sums over processes, a limit to their cells, text."""

from __future__ import annotations

import re
from pathlib import Path

from hotrow.protos import control_pb2
from hotrow.serving.monitoring.metric_help import HELP
from hotrow.serving.monitoring.metrics import (
    Family,
    Kind,
    merged,
    prometheus_name,
    prometheus_text,
    sum_of,
)
from hotrow.serving.monitoring.native_counts import NativeCounts


def _counter(name: str = "c") -> Family:
    return Family(name, Kind.COUNTER, ("a", "b"))


def test_a_value_is_in_the_bucket_that_ends_after_it() -> None:
    family = Family("h", Kind.HISTOGRAM, ("a",), (1.0, 2.5))
    for value in (0.5, 1.0, 2.0, 2.5, 9.0):
        family.add(("x",), value)
    assert family.cells[("x",)].buckets == [1, 2, 2]
    assert prometheus_text([family]) == (
        "# TYPE h histogram\n"
        'h_bucket{a="x",le="1"} 1\n'
        'h_bucket{a="x",le="2.5"} 3\n'
        'h_bucket{a="x",le="+Inf"} 5\n'
        'h_sum{a="x"} 15\n'
        'h_count{a="x"} 5\n'
    )


def test_a_family_without_labels_has_empty_braces_as_tf_servings() -> None:
    family = Family("g", Kind.GAUGE, ())
    family.add(())
    assert prometheus_text([family]) == "# TYPE g gauge\ng{} 1\n"


def test_further_labels_are_counted_together() -> None:
    family = _counter()
    for number in range(5000):
        family.add((str(number), "x"))
    family.add(("0", "x"))
    assert family.cells[("0", "x")].count == 2
    assert family.cells[("other", "other")].count == 5000 - 4096
    assert len(family.cells) == 4097


def test_families_of_one_name_are_added_and_left_as_they_were() -> None:
    first, second, third = _counter("z"), _counter("z"), _counter("a")
    first.add(("1", "2"), 3)
    second.add(("1", "2"), 4)
    second.add(("5", "6"), 7)
    together = merged([first, third, second])
    assert [family.name for family in together] == ["a", "z"]
    assert {key: cell.count for key, cell in together[1].cells.items()} == {
        ("1", "2"): 7,
        ("5", "6"): 7,
    }
    assert first.cells[("1", "2")].count == 3


def test_counts_of_a_process_that_ended_are_kept() -> None:
    replies = [_stats(1, 5), _stats(1, 8), None, _stats(2, 1), None, _stats(3, 2)]
    counts = NativeCounts(lambda: replies.pop(0))
    seen = [counts.families()[0].cells[("x",)].count for _ in range(6)]
    assert seen == [5, 8, 8, 9, 9, 11]


def test_a_gauge_is_that_of_the_process_that_runs() -> None:
    replies = [_stats(1, 3, gauge=True), _stats(2, 1, gauge=True)]
    counts = NativeCounts(lambda: replies.pop(0))
    families = [counts.families()[0] for _ in range(2)]
    assert [family.kind for family in families] == [Kind.GAUGE] * 2
    assert [family.cells[("x",)].count for family in families] == [3, 1]


def _stats(process_id: int, count: int, *, gauge: bool = False) -> control_pb2.StatsReply:
    reply = control_pb2.StatsReply(process_id=process_id)
    family = reply.families.add(name="c", label_names=["a"], gauge=gauge)
    family.cells.add(labels=["x"], count=count)
    return reply


def test_a_metric_has_the_sum_of_its_labels() -> None:
    counter = Family("a", Kind.COUNTER, ("model",))
    counter.add(("one",), 2)
    counter.add(("two",), 3)
    assert sum_of(counter) == 5
    histogram = Family("b", Kind.HISTOGRAM, ("model",), (1.0,))
    histogram.add(("one",), 2)
    assert sum_of(histogram) == 0
    assert sum_of(None) == 0
    assert prometheus_name("/tensorflow/serving/request_count") == (
        ":tensorflow:serving:request_count"
    )


def test_every_metric_is_explained_once_on_the_page_of_serving() -> None:
    page = (Path(__file__).parents[4] / "docs" / "serving.md").read_text()
    table = re.findall(r"^\| `([\w:]+)` \| (\w+) \| (.+?) \| [\w, ()]+ \|$", page, re.MULTILINE)
    assert {name: meaning for name, _, meaning in table} == HELP


def test_a_label_without_a_value_is_left_out_and_help_is_there() -> None:
    family = Family("hotrow_requests_total", Kind.COUNTER, ("model_name", "version"))
    family.add(("m", ""))
    assert prometheus_text([family]) == (
        "# HELP hotrow_requests_total Requests that were answered, by version and signature.\n"
        "# TYPE hotrow_requests_total counter\n"
        'hotrow_requests_total{model_name="m"} 1\n'
    )
