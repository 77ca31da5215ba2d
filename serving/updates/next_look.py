"""When a follower looks at its store again: after an announcement, or after a pause."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.store.bound_rows import BoundRows
    from hotrow.store.row_store import Announcements


class Cause(enum.StrEnum):
    """Why a follower looks at its store."""

    PUSH = "push"
    POLL = "poll"


class NextLook:
    """Waits for the next look; `close` ends all waits."""

    def __init__(self) -> None:
        self._announced = threading.Event()
        self._closed = threading.Event()
        self._announcements: Announcements | None = None
        self._subscribed = False

    def subscribe(self, bound: BoundRows) -> None:
        """Lets announcements of a version's cuts end waits from now on; idempotent."""
        if not self._subscribed:
            self._subscribed = True
            model = bound.generation.model
            self._announcements = bound.store.announcements(model, self._announced.set)

    def wait(self, seconds: float) -> Cause | None:
        """Waits at most so long; returns why it ended, None: `close` was called."""
        pushed = self._announced.wait(seconds)
        if self._closed.is_set():
            return None
        # Cleared before the look, so a message that comes during it brings another one.
        self._announced.clear()
        return Cause.PUSH if pushed else Cause.POLL

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Ends a wait, and all later ones."""
        self._closed.set()
        self._announced.set()

    def unsubscribe(self) -> None:
        """Ends the subscription; nothing waits any more."""
        if self._announcements is not None:
            self._announcements.close()
