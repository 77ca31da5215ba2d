"""Waits for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(
    done: Callable[[], bool], state: Callable[[], Any] = lambda: None, seconds: float = 30.0
) -> None:
    """Waits until `done()`, at most so long; a failure shows `state()`."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, state()
        time.sleep(0.01)
