"""What hotrow-server has counted, also before it ended and was started again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hotrow.protos import control_pb2
from hotrow.serving.monitoring.metrics import Cell, Family, Kind, merged


class NativeCounts:
    """Counts that never go back.

    What a process counted between the last look and its end is lost.

    Args:
        ask: returns the counts of the process that runs now; None when it does not answer.
        from_now: whether to leave out what it has counted so far. REST's counts begin anew with
            the control process, and what is half of a sum must not go on when the other half
            begins anew.
    """

    def __init__(
        self, ask: Callable[[], control_pb2.StatsReply | None], from_now: bool = False
    ) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._process_id = 0
        self._now: list[Family] = []
        self._before: list[Family] = []
        reply = ask() if from_now else None
        if reply is not None:
            self._process_id = reply.process_id
            families = [_family(family) for family in reply.families]
            self._before = [family.negated() for family in _without_gauges(families)]

    def families(self) -> list[Family]:
        """Returns all counts so far."""
        reply = self._ask()
        with self._lock:
            if reply is not None:
                if reply.process_id != self._process_id:
                    self._before = merged([*self._before, *_without_gauges(self._now)])
                    self._process_id = reply.process_id
                self._now = [_family(family) for family in reply.families]
            return merged([*self._before, *self._now])


def _without_gauges(families: list[Family]) -> list[Family]:
    """Returns what may be added up: a gauge is of one process, and of now."""
    return [family for family in families if family.kind is not Kind.GAUGE]


def _family(family: control_pb2.StatsReply.Family) -> Family:
    kind = Kind.GAUGE if family.gauge else Kind.HISTOGRAM if family.bounds else Kind.COUNTER
    cells = {
        tuple(cell.labels): Cell(cell.count, cell.sum, list(cell.buckets)) for cell in family.cells
    }
    return Family(family.name, kind, tuple(family.label_names), tuple(family.bounds), cells)
