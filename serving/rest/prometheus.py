"""The metrics page: hotrow-server's counts, REST's counts, and the states of models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from hotrow.protos import monitoring_config_pb2
from hotrow.serving.lifecycle.model_lifecycle import State, VersionStatus
from hotrow.serving.monitoring.metrics import (
    LATENCY_BOUNDS,
    Family,
    Kind,
    merged,
    prometheus_text,
)
from hotrow.serving.wire.status import Code
from hotrow.serving.wire.text_proto import read_text_proto

DEFAULT_PATH = "/monitoring/prometheus/metrics"

Statuses = Callable[[], Mapping[str, Sequence[VersionStatus]]]
"""Returns the versions of each model."""


def read_metrics_path(path: str) -> str | None:
    """Returns the path of metrics in a `--monitoring_config_file`; None: no metrics.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it is no MonitoringConfig.
    """
    if not path:
        return None
    config = read_text_proto(path, monitoring_config_pb2.MonitoringConfig())
    prometheus = config.prometheus_config
    return (prometheus.path or DEFAULT_PATH) if prometheus.enable else None


class Monitoring:
    """Counts REST requests and writes the page of metrics; safe for several threads.

    Args:
        native: returns the counts of the data plane, and of cuts.
        statuses: of the models.
        build: version of the server and of TensorFlow.
    """

    def __init__(
        self,
        native: Callable[[], Sequence[Family]],
        statuses: Statuses,
        build: tuple[str, str],
    ) -> None:
        self._native = native
        self._statuses = statuses
        self._lock = threading.Lock()
        self._requests = Family(
            ":tensorflow:serving:request_count", Kind.COUNTER, ("model_name", "status")
        )
        self._latency = Family(
            ":tensorflow:serving:request_latency",
            Kind.HISTOGRAM,
            ("model_name", "API", "entrypoint"),
            LATENCY_BOUNDS,
        )
        self._build = Family("hotrow_build_info", Kind.GAUGE, ("version", "tensorflow"))
        self._build.add(build)

    def count_rest(self, model: str, method: str, code: Code, micros: float) -> None:
        """Counts a REST request that was answered.

        Args:
            model: its model, "" when it names none.
            method: "predict", "classify", "regress", or "" for others.
            code: of the answer.
            micros: its duration; recorded for successes only.
        """
        with self._lock:
            self._requests.add((model, code.name))
            if code is Code.OK:
                self._latency.add((model, method, "REST"), micros)

    def families(self) -> list[Family]:
        """Returns everything, by name."""
        native = self._native()
        versions = self._of_versions()
        with self._lock:
            return merged([*native, self._requests, self._latency, self._build, *versions])

    def page(self) -> str:
        """Returns everything in Prometheus' text format."""
        return prometheus_text(self.families())

    def _of_versions(self) -> list[Family]:
        """Returns gauges that are 1 for the state of each version, and for those given up."""
        states = Family(
            "hotrow_model_version_state", Kind.GAUGE, ("model_name", "version", "state")
        )
        failed = Family(
            "hotrow_model_version_failed", Kind.GAUGE, ("model_name", "version", "code")
        )
        for model, versions in self._statuses().items():
            for status in versions:
                states.add((model, str(status.version), State(status.state).name))
                if status.given_up:
                    failed.add((model, str(status.version), status.code.name))
        return [states, failed]
