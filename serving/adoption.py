"""What an executable has left of the control process before this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from hotrow.protos import control_pb2


class Adoption:
    """Servables that nobody here has asked for yet.

    Attributes:
        routes: where requests go now.
        listening: what the executable listens on; None: it does not.
        highest: number of a servable; 0 when there is none.
    """

    def __init__(self, left: control_pb2.DescribeReply) -> None:
        self.routes = left.routes
        self.listening = left.listening if left.HasField("listening") else None
        self.highest = max((entry.load.servable for entry in left.servables), default=0)
        self._lock = threading.Lock()
        self._servables = {entry.load.servable: entry for entry in left.servables}

    def take(
        self, wanted: control_pb2.LoadRequest
    ) -> tuple[control_pb2.LoadRequest, Mapping[str, Any]] | None:
        """Returns a servable that is what a load asks for, with its signatures; each one once."""
        with self._lock:
            for number, entry in self._servables.items():
                if _same(entry.load, wanted):
                    del self._servables[number]
                    return entry.load, entry.signatures.signature_def
        return None

    def rows_of(self, model: str, version: int, path: str, store: str) -> control_pb2.Rows | None:
        """Returns how a version reads its rows; None: it is not loaded with this store."""
        with self._lock:
            for entry in self._servables.values():
                load: control_pb2.LoadRequest = entry.load
                known = load.model, load.version, load.path, load.store
                if known == (model, version, path, store):
                    return load.rows
        return None

    def rest(self) -> list[int]:
        """Returns the servables that nobody took, and forgets them."""
        with self._lock:
            left, self._servables = list(self._servables), {}
        return left


def _same(left: control_pb2.LoadRequest, wanted: control_pb2.LoadRequest) -> bool:
    compared = []
    for request in (left, wanted):
        copy = control_pb2.LoadRequest()
        copy.CopyFrom(request)
        copy.ClearField("servable")
        copy.ClearField("warm_up")
        copy.rows.ClearField("topology")  # it may have changed since
        compared.append(copy)
    return compared[0] == compared[1]
