"""What the executable answers of models and of health, sent to it after each change."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hotrow.protos import control_pb2
from hotrow.serving.lifecycle.model_service import status_response
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.serving.wire.status import RequestError

_LOG = logging.getLogger(__name__)

# No change of a trouble is notified: they are read in this interval.
_TICK_SECONDS = 0.2


class StatusReport:
    """Sends the statuses of all models after each change, from `start` to `stop`.

    Args:
        models: of the server.
        changed: the lock of their lifecycles, notified of every change.
        trouble: returns why the executable does not answer predictions; "": it does.
        notices: returns troubles with stores, which leave the server ready.
        send: takes the statuses; returns when the executable has them.
    """

    def __init__(
        self,
        models: ServedModels,
        changed: threading.Condition,
        trouble: Callable[[], str],
        notices: Callable[[], Mapping[str, Any]],
        send: Callable[[control_pb2.Statuses], None],
    ) -> None:
        self._models = models
        self._changed = changed
        self._trouble = trouble
        self._notices = notices
        self._send = send
        self._sending = threading.Lock()  # so that none is followed by an earlier one
        self._sent: control_pb2.Statuses | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="statuses", daemon=True)

    def start(self) -> None:
        """Sends the statuses, and from now on each change of them."""
        self.flush()
        self._thread.start()

    def flush(self) -> None:
        """Returns when the executable has the present statuses, or refuses them."""
        with self._sending:
            now = self.statuses()
            if now == self._sent:
                return
            try:
                self._send(now)
            except RequestError as err:
                # A server that ends takes none.
                _LOG.warning(f"hotrow-server does not know the present statuses of models: {err}")
            self._sent = now

    def statuses(self) -> control_pb2.Statuses:
        """Returns the statuses as they are now."""
        statuses = control_pb2.Statuses(trouble=self._trouble())
        if notices := self._notices():
            statuses.notices = json.dumps(notices)
        with self._changed:
            configured = self._models.configured()
            for name, versions in self._models.known().items():
                statuses.models.add(
                    name=name, configured=name in configured, versions=status_response(versions)
                )
        return statuses

    def stop(self) -> None:
        """Sends no more."""
        with self._changed:
            self._ending.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        while not self._ending.is_set():
            with self._changed:
                self._changed.wait_for(self._has_news, _TICK_SECONDS)
            if not self._ending.is_set():
                self.flush()

    def _has_news(self) -> bool:
        return self._ending.is_set() or self.statuses() != self._sent
