"""Bounds of loads that are under way side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from hotrow.protos import control_pb2

Reserve = Callable[[control_pb2.LoadRequest], AbstractContextManager[None]]
"""Surrounds a load: waits for memory that other loads need, or refuses with a `HotrowError`."""


def reserve_nothing(request: control_pb2.LoadRequest) -> AbstractContextManager[None]:
    """Lets each load begin at once."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class LoadLimits:
    """Bounds of loads.

    Attributes:
        reserving: returns a new account of memory. Loads of a running executable have one, those
            after a restart have their own: the former wait for the restart.
        restart_threads: versions that a restarted executable loads at a time.
    """

    reserving: Callable[[], Reserve] = lambda: reserve_nothing
    restart_threads: int = 1
