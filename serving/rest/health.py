"""`/v1/health/live` and `/v1/health/ready`, which TF Serving does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hotrow.serving.lifecycle.model_lifecycle import State, VersionStatus

LIVE = "/v1/health/live"
READY = "/v1/health/ready"


class Health:
    """Answers at once, whatever other requests are running.

    Args:
        statuses: returns the versions of each model.
        trouble: returns why the process that answers predictions does not; "": it does.
        cuts: returns troubles that leave the server ready: models whose store cannot be followed
            or went back in time, or that refuse their newest cut.
    """

    def __init__(
        self,
        statuses: Callable[[], Mapping[str, Sequence[VersionStatus]]],
        trouble: Callable[[], str],
        cuts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._statuses = statuses
        self._trouble = trouble
        self._cuts = cuts

    def live(self) -> tuple[int, bytes]:
        """Returns HTTP status and body: this process works."""
        return 200, b'{"live": true}'

    def ready(self) -> tuple[int, bytes]:
        """Returns HTTP status and body: 200 when every model has a version that serves.

        The body names models whose store is unreachable, and those that refuse their newest cut
        with the reason, but the status stays 200: cached rows and the previous cut still serve, and
        otherwise all servers of that store would be taken out at once.
        """
        waiting = [
            name
            for name, versions in self._statuses().items()
            if not any(status.state == State.AVAILABLE for status in versions)
        ]
        if waiting:
            text = {"ready": False, "models_without_an_available_version": waiting}
            return 503, json.dumps(text).encode()
        if trouble := self._trouble():
            return 503, json.dumps({"ready": False, "reason": trouble}).encode()
        return 200, json.dumps({"ready": True, **self._cuts()}).encode()
