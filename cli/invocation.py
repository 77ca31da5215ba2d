"""The parts of a command line that its command can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Invocation:
    """The values of the group's options for one call of `main`, and the arguments."""

    debug: bool = False
    arguments: Sequence[str] = ()
