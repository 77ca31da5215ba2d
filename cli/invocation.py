"""What a command knows of the command line that it is part of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Invocation:
    """What the options of the group set for this call of `main`, and its arguments."""

    debug: bool = False
    arguments: Sequence[str] = ()
