"""The trainer's page of metrics."""

from __future__ import annotations

import re
from pathlib import Path

from online_control import StateInMemory
from prometheus_client.parser import text_string_to_metric_families

from hotrow.protos import online_pb2
from hotrow.trainer.online.admin.metrics import METRICS, Kind, metrics_page

ROOT = Path(__file__).resolve().parents[5]
DOCS = ROOT / "docs" / "online_operating.md"


def values_of(status: online_pb2.TrainerStatus) -> dict[str, float]:
    """Returns the values of a page by `name` or `name{label values}`."""
    values = {}
    for family in text_string_to_metric_families(metrics_page(status)):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def test_the_page_has_the_status() -> None:
    control = StateInMemory()
    histogram = control.state.publishing.publish_seconds
    histogram.bounds.extend([0.1, 1.0])
    histogram.buckets.extend([4, 1, 2])
    histogram.sum = 30.0
    values = values_of(control.status())
    assert values["hotrow_online_events_total"] == 1200
    assert values["hotrow_online_lag_events"] == 7
    assert values["hotrow_online_auc{online}"] == 0.78
    assert values["hotrow_online_auc{frozen}"] == 0.71
    assert values["hotrow_online_state{training}"] == 1
    assert values["hotrow_online_state{paused}"] == 0
    assert 20 <= values["hotrow_online_checkpoint_age_seconds"] < 80
    assert values["hotrow_online_publish_seconds_bucket{0.1}"] == 4
    assert values["hotrow_online_publish_seconds_bucket{1}"] == 5
    assert values["hotrow_online_publish_seconds_bucket{+Inf}"] == 7
    assert values["hotrow_online_publish_seconds_sum"] == 30.0


def test_every_state_but_training_is_seen_by_its_own_gauge() -> None:
    control = StateInMemory()
    gauges = [f"hotrow_online_{name}" for name in ("paused", "gate_closed", "fenced")]
    assert [values_of(control.status())[name] for name in gauges] == [0, 0, 0]
    control.pause("maintenance")
    control.state.publishing.gate.closed = True
    control.state.publishing.fenced = True
    assert [values_of(control.status())[name] for name in gauges] == [1, 1, 1]


def test_what_is_not_known_is_left_out() -> None:
    values = values_of(online_pb2.TrainerStatus())
    assert values["hotrow_online_events_total"] == 0
    for name in ("lag_events", "lag_seconds", "checkpoint_age_seconds", "cut_age_seconds", "auc"):
        assert not [key for key in values if key.startswith(f"hotrow_online_{name}")]


def test_each_metric_has_its_help_type_and_labels() -> None:
    control = StateInMemory()
    for name in ("mean_score", "auc", "change", "server_difference"):
        setattr(control.state.publishing.canary, name, 0.25)
    page = metrics_page(control.status())
    for metric in METRICS:
        assert f"# HELP {metric.full_name} {metric.help}\n" in page
        assert f"# TYPE {metric.full_name} {metric.kind.value}\n" in page
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        if metric.labels:
            names = r'="[^"]*",'.join(sorted(metric.labels))
            assert re.search(rf'^{metric.full_name}{{{names}="[^"]*"}} ', page, re.MULTILINE)


def test_the_docs_have_the_same_table() -> None:
    lines = re.findall(
        r"^\| `(hotrow_online_\w+)` \| (\w+) \| (.+) \| (.*) \|$", DOCS.read_text(), re.MULTILINE
    )
    ours = [(m.full_name, m.kind.value, m.help, ", ".join(m.labels)) for m in METRICS]
    assert lines == ours
