"""The control process's copy of the table by which the data plane routes requests to versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from hotrow.protos import control_pb2
from hotrow.serving.config.request_log_options import RequestLogOptions
from hotrow.serving.config.request_logging import Logging
from hotrow.serving.lifecycle.servable import Servable


class RouteTable:
    """The AVAILABLE versions of every model; each change is published as a whole.

    Args:
        publish: takes the new table.
        log_options: bounds of logged requests.
    """

    def __init__(
        self, publish: Callable[[control_pb2.Routes], None], log_options: RequestLogOptions
    ) -> None:
        self._publish = publish
        self._log_limits = control_pb2.RequestLogLimits(
            file_bytes=log_options.request_log_file_bytes,
            file_seconds=log_options.request_log_file_seconds,
            queue_bytes=log_options.request_log_queue_bytes,
        )
        self._changing = threading.Lock()
        self._models: dict[str, Mapping[int, Servable]] = {}
        self._labels: Mapping[str, Mapping[str, int]] = {}
        self._logging: Logging = {}

    def set_versions(self, model: str, versions: Mapping[int, Servable]) -> None:
        """Routes a model's requests to these versions from now on."""
        with self._changing:
            self._models = {**self._models, model: dict(versions)}
            self._publish_all()

    def publish_again(self) -> None:
        """Publishes the routes again, after a version changed the servable that answers."""
        with self._changing:
            self._publish_all()

    def configure(self, labels: Mapping[str, Mapping[str, int]], logging: Logging) -> None:
        """Sets the labels and the logging of all models.

        Args:
            labels: by model; a version that does not serve may have one, too.
            logging: of the models whose requests are logged.
        """
        with self._changing:
            self._labels = {model: dict(versions) for model, versions in labels.items()}
            self._logging = logging
            self._publish_all()

    def _publish_all(self) -> None:
        routes = control_pb2.Routes(request_logs=self._log_limits)
        for name in sorted({*self._models, *self._labels}):
            entry = routes.models.add(
                name=name, labels=self._labels.get(name, {}), logging=self._logging.get(name)
            )
            for number, servable in self._models.get(name, {}).items():
                entry.versions.add(version=number, servable=servable.number)
        self._publish(routes)
