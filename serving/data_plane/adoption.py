"""Servables that a running executable still has from the previous control process."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass

from hotrow.protos import control_pb2


@dataclass(frozen=True)
class Adopted:
    """A loaded version that this process takes over.

    Attributes:
        loads: the load requests of its servables, the one with the tables first.
        routed: number of the servable that answers.
    """

    loads: list[control_pb2.LoadRequest]
    routed: int


class Adoption:
    """Servables that the current control process has not claimed yet.

    Attributes:
        routes: where requests go now.
        listening: what the executable listens on; None: nothing.
        highest: the highest number of a servable; 0 without servables.
    """

    def __init__(self, left: control_pb2.DescribeReply) -> None:
        self.routes = left.routes
        self.listening = left.listening if left.HasField("listening") else None
        self.highest = max((entry.load.servable for entry in left.servables), default=0)
        self._lock = threading.Lock()
        self._servables = {entry.load.servable: entry for entry in left.servables}
        self._left: list[int] = []

    def take(self, wanted: control_pb2.LoadRequest) -> Adopted | None:
        """Returns the version that a load request matches, each only once; None: no match."""
        with self._lock:
            first = next(
                (e for e in self._servables.values() if _same(e.load, wanted)),
                None,
            )
            if first is None:
                return None
            own = first.load.servable
            entries = [e for n, e in self._servables.items() if n == own or e.load.shares == own]
            for entry in entries:
                del self._servables[entry.load.servable]
        loads = sorted((entry.load for entry in entries), key=lambda load: load.shares)
        numbers = [load.servable for load in loads]
        routed = next((n for n in numbers if n in self._routed()), own)
        return Adopted(loads, routed)

    def _routed(self) -> set[int]:
        return {entry.servable for model in self.routes.models for entry in model.versions}

    def rows_of(self, model: str, version: int, path: str, store: str) -> control_pb2.Rows | None:
        """Returns how a version reads its rows; None: it is not loaded with this store."""
        with self._lock:
            for entry in self._servables.values():
                load: control_pb2.LoadRequest = entry.load
                known = load.model, load.version, load.path, load.store, load.shares
                if known == (model, version, path, store, 0):
                    return load.rows
        return None

    def leave(self, servable: int) -> None:
        """Notes a claimed servable that only the current routes still need."""
        with self._lock:
            self._left.append(servable)

    def rest(self) -> list[int]:
        """Removes and returns the servables that are unclaimed or no longer needed."""
        with self._lock:
            left, self._servables, self._left = [*self._servables, *self._left], {}, []
        return left


def _same(left: control_pb2.LoadRequest, wanted: control_pb2.LoadRequest) -> bool:
    compared = []
    for request in (left, wanted):
        copy = control_pb2.LoadRequest()
        copy.CopyFrom(request)
        copy.ClearField("servable")
        copy.ClearField("warm_up")
        copy.ClearField("shown")  # differs if a cut was taken since
        copy.rows.ClearField("topology")  # it may have changed since
        if copy.rows.generation:  # the record may have changed, too; the rows have not
            copy.rows.generation = json.loads(copy.rows.generation)["generation"]
        compared.append(copy)
    return compared[0] == compared[1]
