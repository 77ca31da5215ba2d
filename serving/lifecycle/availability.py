"""TF Serving's AvailabilityPreservingPolicy: what to do next with the versions of a model.

A version is unloaded when it is not aspired and not needed to keep the model available. So a new
version is loaded beside the old one first, which takes the memory of both for a while.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Stage(enum.Enum):
    """The stage of a version, as the policy sees it."""

    NEW = enum.auto()
    READY = enum.auto()
    OTHER = enum.auto()  # loading, unloading, ended


@dataclass(frozen=True)
class Candidate:
    """A known version.

    Attributes:
        version: its number.
        stage: its stage.
        aspired: whether it should serve.
    """

    version: int
    stage: Stage
    aspired: bool


def version_to_unload(versions: Iterable[Candidate]) -> int | None:
    """Returns the version to unload next: the lowest one that is ready and no longer aspired.

    None while it is the only ready version and an aspired one may still become ready.
    """
    known = list(versions)
    aspired = [entry for entry in known if entry.aspired]
    leftover = [e.version for e in known if not e.aspired and e.stage is Stage.READY]
    replaced = any(entry.stage is Stage.READY for entry in aspired)
    if leftover and (not aspired or replaced or len(leftover) > 1):
        return min(leftover)
    return None


def version_to_load(versions: Iterable[Candidate]) -> int | None:
    """Returns the version to load next: the highest new one that is aspired."""
    new = [entry.version for entry in versions if entry.aspired and entry.stage is Stage.NEW]
    return max(new, default=None)
