"""`/v1/health/live` and `/v1/health/ready`, which TF Serving does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from hotrow.serving.lifecycle.model_lifecycle import State, VersionStatus

LIVE = "/v1/health/live"
READY = "/v1/health/ready"


class Health:
    """Answers at once, whatever other requests are running.

    Args:
        statuses: returns the versions of each model.
        answers: whether the process that answers predictions runs.
        stale: returns lists by name: models whose store cannot be followed, or has lost what they
            show.
    """

    def __init__(
        self,
        statuses: Callable[[], Mapping[str, Sequence[VersionStatus]]],
        answers: Callable[[], bool],
        stale: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        self._statuses = statuses
        self._answers = answers
        self._stale = stale

    def live(self) -> tuple[int, bytes]:
        """Returns HTTP status and body: this process works."""
        return 200, b'{"live": true}'

    def ready(self) -> tuple[int, bytes]:
        """Returns HTTP status and body: 200 when every model has a version that serves.

        The body names models whose store is unreachable, or went back in time, but the status
        stays 200: cached rows still serve, and otherwise all servers of that store would be taken
        out at once.
        """
        waiting = [
            name
            for name, versions in self._statuses().items()
            if not any(status.state == State.AVAILABLE for status in versions)
        ]
        if waiting:
            text = {"ready": False, "models_without_an_available_version": waiting}
            return 503, json.dumps(text).encode()
        if not self._answers():
            return 503, b'{"ready": false, "reason": "hotrow-server is being started again"}'
        if stale := self._stale():
            return 200, json.dumps({"ready": True, **stale}).encode()
        return 200, b'{"ready": true}'
