"""The metrics of a trainer that learns online; `docs/online_operating.md` has the same table.

The page is made of the status alone, so that both agree.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hotrow.protos import online_pb2

_Status = online_pb2.TrainerStatus
_Labels = tuple[str, ...]
_PREFIX = "hotrow_online_"


class Kind(enum.Enum):
    """The type of a metric, as the page names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class TrainerMetric:
    """A metric.

    Attributes:
        name: without the prefix `hotrow_online_`.
        kind: a counter's name ends in `_total`.
        help: what it means.
        read: returns the values by labels; a value of None is not known and left out.
        labels: their names.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[_Status], Iterable[tuple[_Labels, object]]]
    labels: _Labels = ()

    @property
    def full_name(self) -> str:
        """The name on the page."""
        return _PREFIX + self.name


def _counter(name: str, text: str, value: Callable[[_Status], float]) -> TrainerMetric:
    return TrainerMetric(f"{name}_total", Kind.COUNTER, text, lambda s: [((), value(s))])


def _gauge(name: str, text: str, value: Callable[[_Status], float | None]) -> TrainerMetric:
    return TrainerMetric(name, Kind.GAUGE, text, lambda s: [((), value(s))])


def _progressive(field: str, text: str, name: str = "") -> TrainerMetric:
    def read(status: _Status) -> Iterator[tuple[_Labels, object]]:
        for scored in status.progressive:
            yield (scored.model,), _known(scored.window, field)

    return TrainerMetric(name or field, Kind.GAUGE, text, read, ("model",))


def _histogram(name: str, text: str) -> TrainerMetric:
    return TrainerMetric(name, Kind.HISTOGRAM, text, lambda s: [((), getattr(s.publishing, name))])


def _known(message: object, field: str) -> float | None:
    """Returns the value of an optional field; None: it is not set."""
    descriptor = message.DESCRIPTOR.fields_by_name[field]  # type: ignore[attr-defined]
    if descriptor.has_presence and not message.HasField(field):  # type: ignore[attr-defined]
        return None
    return float(getattr(message, field))


def _age(status: _Status, since: float | None) -> float | None:
    """Returns the seconds since a time; None if that is not known."""
    return None if since is None else max(0.0, status.time - since)


def _last_commit(status: _Status) -> float | None:
    return status.publishing.last.committed if status.publishing.HasField("last") else None


def _state(status: _Status) -> list[tuple[_Labels, object]]:
    return [
        ((name.lower(),), float(number == status.state))
        for name, number in _Status.State.items()
        if number
    ]


def _info(status: _Status) -> list[tuple[_Labels, object]]:
    return [((status.run, status.model, status.run_id, status.version), 1.0)]


METRICS = (
    TrainerMetric(
        "info",
        Kind.GAUGE,
        "1, with the run, the model that it publishes, and the version of Hotrow.",
        _info,
        ("run", "model", "run_id", "version"),
    ),
    TrainerMetric("state", Kind.GAUGE, "1 for the state of the trainer.", _state, ("state",)),
    _gauge("paused", "1 while an operator has paused it.", lambda s: s.state == _Status.PAUSED),
    _gauge("step", "Training steps since the run's first start.", lambda s: s.step),
    _counter(
        "busy_seconds", "Time in which training did not wait for events.", lambda s: s.busy_seconds
    ),
    _gauge("ranks", "Processes that train.", lambda s: s.ranks),
    _counter("events", "Events that were trained.", lambda s: s.stream.events),
    _counter("bad", "Events that could not be read.", lambda s: s.stream.bad),
    _counter("late", "Events later than online.late_seconds.", lambda s: s.stream.late),
    _counter("joined", "Labels that met their row.", lambda s: s.stream.joined),
    _counter("expired", "Rows without a label after the window.", lambda s: s.stream.expired),
    _counter("early", "Rows trained early for want of room.", lambda s: s.stream.early),
    _gauge(
        "lag_events",
        "Events in the source that were not read.",
        lambda s: _known(s.stream, "lag_events"),
    ),
    _gauge(
        "lag_seconds",
        "Age of the oldest event that was not read.",
        lambda s: _known(s.stream, "lag_seconds"),
    ),
    _gauge(
        "newest_event_time_seconds",
        "Time of the newest event, Unix seconds.",
        lambda s: _known(s.stream, "newest_event"),
    ),
    _gauge(
        "source_is_away", "1 while the source does not answer.", lambda s: bool(s.stream.trouble)
    ),
    _progressive("auc", "Test-then-train AUC of the last window."),
    _progressive("logloss", "Test-then-train log loss of the last window."),
    _progressive("calibration", "Mean score over mean label of the last window."),
    _progressive("events", "Events of the last window.", "window_events"),
    _gauge("checkpoint_step", "Step of the newest checkpoint.", lambda s: s.checkpoints.step),
    _gauge(
        "checkpoint_age_seconds",
        "Since the newest checkpoint.",
        lambda s: _age(s, _known(s.checkpoints, "time")),
    ),
    _gauge(
        "checkpoint_failures",
        "Failed checkpoints since the newest one.",
        lambda s: s.checkpoints.failures,
    ),
    _counter("cuts", "Cuts that were committed.", lambda s: s.publishing.cuts),
    _counter("rows", "Rows in committed cuts.", lambda s: s.publishing.rows),
    _counter(
        "coalesced_rows",
        "Changes of rows that a later change replaced before they were sent.",
        lambda s: s.publishing.coalesced_rows,
    ),
    _gauge(
        "waiting_rows",
        "Rows that have changed since the last cut was taken.",
        lambda s: s.publishing.waiting_rows,
    ),
    _counter("publish_failures", "Cuts that failed.", lambda s: s.publishing.failures_total),
    _gauge(
        "publish_failures_in_a_row",
        "Cuts that failed since the last one that was committed.",
        lambda s: s.publishing.failures,
    ),
    _gauge(
        "cut_age_seconds",
        "Since the commit of the last cut.",
        lambda s: _age(s, _last_commit(s)),
    ),
    _gauge(
        "unfolded_cuts",
        "Committed cuts that are not folded yet.",
        lambda s: s.publishing.unfolded_cuts,
    ),
    _histogram("publish_seconds", "From taking a cut to its commit."),
    _histogram("event_to_commit_seconds", "From a cut's newest event to its commit."),
    _counter("base_exports", "Full exports that it made.", lambda s: s.publishing.base_exports),
    _gauge("gate_closed", "1 while a gate holds cuts back.", lambda s: s.publishing.gate.closed),
    _counter(
        "gate_closings", "Times that a gate closed.", lambda s: s.publishing.gate.closed_total
    ),
    _gauge("fenced", "1 when another trainer publishes the model.", lambda s: s.publishing.fenced),
    _gauge(
        "canary_mean_score",
        "Mean score of the canary set.",
        lambda s: _known(s.publishing.canary, "mean_score"),
    ),
    _gauge("canary_auc", "AUC of the canary set.", lambda s: _known(s.publishing.canary, "auc")),
    _gauge(
        "canary_change",
        "Change of the canary's mean score since the last good cut.",
        lambda s: _known(s.publishing.canary, "change"),
    ),
    _gauge(
        "canary_server_difference",
        "Largest difference of a server's canary scores to the trainer's.",
        lambda s: _known(s.publishing.canary, "server_difference"),
    ),
    _gauge(
        "canary_tolerance",
        "How large that difference may be.",
        lambda s: s.publishing.canary.tolerance if s.publishing.HasField("canary") else None,
    ),
)
"""All metrics, in the order of the page."""


def metrics_page(status: online_pb2.TrainerStatus) -> str:
    """Returns a status in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(status))
    return generate_latest(registry).decode()


class _Collector(Collector):
    """The metrics of one status."""

    def __init__(self, status: online_pb2.TrainerStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that have a value."""
        for metric in METRICS:
            family = _family(metric, self._status)
            if family.samples:
                yield family


def _family(metric: TrainerMetric, status: online_pb2.TrainerStatus) -> Metric:
    values = [(labels, v) for labels, v in metric.read(status) if v is not None]
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.full_name, metric.help)
        for _, value in values:
            assert isinstance(value, online_pb2.Histogram)
            histogram.add_metric((), _buckets(value), value.sum)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in values:
        family.add_metric(labels, float(value))  # type: ignore[arg-type]
    return family


def _buckets(histogram: online_pb2.Histogram) -> list[tuple[str, float]]:
    """Returns cumulative counts by the text of their bounds."""
    bounds = [f"{bound:g}" for bound in histogram.bounds] + ["+Inf"]
    counts = list(histogram.buckets) or [0] * len(bounds)
    return [(bound, float(sum(counts[: i + 1]))) for i, bound in enumerate(bounds)]
