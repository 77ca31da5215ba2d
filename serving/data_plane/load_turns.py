"""Which load ended the process: the one that was under way alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from hotrow.serving.monitoring.metrics import Family, Kind

_CRASHES = "hotrow_load_crashes_total"
_LABELS = ("model_name", "version")


@dataclass
class Turn:
    """A load that is under way.

    Attributes:
        model: name of the version's model.
        version: its number.
        alone: whether no other load may begin beside it.
        shared: whether another load was under way at the same time.
    """

    model: str
    version: int
    alone: bool
    shared: bool


class LoadTurns:
    """Loads side by side, except for suspects, which load alone.

    When the process ends, every load that is under way ends, and any of them may be the cause. So
    they become suspects: each is repeated alone, and if the process ends again, the cause is known.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: list[Turn] = []
        self._suspects: set[tuple[str, int]] = set()
        self._crashes = Family(_CRASHES, Kind.COUNTER, _LABELS)

    @contextlib.contextmanager
    def turn(self, model: str, version: int) -> Iterator[Turn]:
        """Surrounds a load; waits until it may begin."""
        with self._changed:
            alone = (model, version) in self._suspects
            self._changed.wait_for(lambda: self._may_begin(alone))
            turn = Turn(model, version, alone, shared=bool(self._under_way))
            for other in self._under_way:
                other.shared = True
            self._under_way.append(turn)
        try:
            yield turn
        finally:
            with self._changed:
                self._under_way.remove(turn)
                self._changed.notify_all()

    def blames(self, turn: Turn) -> bool:
        """Records that the process ended during a load; returns whether no other may be the cause.

        A load that was under way alone counts as a crash of its version.
        """
        with self._changed:
            self._suspects.add((turn.model, turn.version))
            if not turn.shared:
                self._count(turn.model, turn.version)
            return not turn.shared

    def count(self, model: str, version: int) -> None:
        """Counts a crash of a version that was loaded again after a restart, always alone."""
        with self._changed:
            self._suspects.add((model, version))
            self._count(model, version)

    def clear(self, model: str, version: int) -> None:
        """Records that a version was loaded: it is no suspect."""
        with self._changed:
            self._suspects.discard((model, version))

    def families(self) -> list[Family]:
        """Returns the metric."""
        with self._changed:
            crashes = Family(_CRASHES, Kind.COUNTER, _LABELS)
            crashes.merge(self._crashes.cells)
        return [crashes]

    def _may_begin(self, alone: bool) -> bool:
        if alone:
            return not self._under_way
        return not any(turn.alone for turn in self._under_way)

    def _count(self, model: str, version: int) -> None:
        self._crashes.add((model, str(version)))
