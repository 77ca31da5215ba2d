"""What the thread that publishes does, or waits for."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """What the worker does, or waits for."""

    FIND = auto()
    BEGIN = auto()  # waits until all ranks have marked their rows
    BASE = auto()  # waits until all ranks take a checkpoint
    CHECKPOINT = auto()  # waits until it is written
    EXPORT = auto()
    PREPARE = auto()
    READY = auto()  # waits for the next cut
    STAGE = auto()
    PARTS = auto()  # waits for the parts of other ranks
    SETTLE = auto()  # waits until all ranks have closed their views
    STOPPED = auto()


ORDERING = frozenset({Phase.BEGIN, Phase.BASE, Phase.SETTLE, Phase.STOPPED})
"""Phases in which ranks may have something to do although no cut is due, or training ends."""
