"""Counts of hotrow-server, including those from before a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hotrow.protos import control_pb2
from hotrow.serving.monitoring.metrics import Cell, Family, Kind, merged


class NativeCounts:
    """Counts that never decrease.

    The counts of a process between the last read and its end are lost.

    Args:
        ask: returns the counts of the process that runs now; None when it does not answer.
    """

    def __init__(self, ask: Callable[[], control_pb2.StatsReply | None]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._process_id = 0
        self._now: list[Family] = []
        self._before: list[Family] = []

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
    """Returns the families that add up; a gauge belongs to one process and to now."""
    return [family for family in families if family.kind is not Kind.GAUGE]


def _family(family: control_pb2.StatsReply.Family) -> Family:
    kind = Kind.GAUGE if family.gauge else Kind.HISTOGRAM if family.bounds else Kind.COUNTER
    cells = {
        tuple(cell.labels): Cell(cell.count, cell.sum, list(cell.buckets)) for cell in family.cells
    }
    return Family(family.name, kind, tuple(family.label_names), tuple(family.bounds), cells)
