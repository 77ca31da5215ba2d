"""What an operator asks of the thread that publishes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from hotrow.errors import DeadlineExceededError

_SECONDS = 60.0
"""How long a task waits for its turn."""


class Tasks:
    """Tasks that wait for their turn between two cuts.

    Args:
        changed: notified of a new task; guards the tasks.
        busy: returns what keeps the thread from the next task.
    """

    def __init__(self, changed: threading.Condition, busy: Callable[[], str]) -> None:
        self._changed = changed
        self._busy = busy
        self._waiting: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def pop(self) -> Callable[[], None]:
        """Removes and returns the first one, which never raises."""
        return self._waiting.popleft()

    def run(self, task: Callable[[], None]) -> None:
        """Returns when a task has ended.

        Raises:
            DeadlineExceededError: its turn does not come, as the store does not answer.
            Exception: what the task raised.
        """
        ended = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                task()
            except BaseException as err:
                errors.append(err)
            ended.set()

        with self._changed:
            self._waiting.append(run)
            self._changed.notify_all()
        if not ended.wait(_SECONDS):
            with self._changed:
                has_begun = run not in self._waiting
                if not has_begun:
                    self._waiting.remove(run)
            if not has_begun:
                raise DeadlineExceededError(f"not begun within {_SECONDS:g} s: {self._busy()}")
            ended.wait()
        if errors:
            raise errors[0]
