"""The page of metrics: those of all parts of a server, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hotrow.protos import monitoring_config_pb2
from hotrow.serving.monitoring.metrics import Family, Kind, merged, prometheus_text
from hotrow.text_proto import read_text_proto

DEFAULT_PATH = "/monitoring/prometheus/metrics"


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
    """All metrics; safe for several threads.

    Args:
        parts: each returns the metrics of one part of the server.
    """

    def __init__(self, *parts: Callable[[], Sequence[Family]]) -> None:
        self._parts = parts

    def families(self) -> list[Family]:
        """Returns everything, by name."""
        return merged(family for part in self._parts for family in part())

    def page(self) -> str:
        """Returns everything in Prometheus' text format."""
        return prometheus_text(self.families())


def build_info(version: str, tensorflow: str) -> Family:
    """Returns a gauge of 1 with the versions of the server and of TensorFlow."""
    build = Family("hotrow_build_info", Kind.GAUGE, ("version", "tensorflow"))
    build.add((version, tensorflow))
    return build
