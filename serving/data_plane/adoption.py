"""What an executable has left of the control process before this one."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotrow.protos import control_pb2


@dataclass(frozen=True)
class Adopted:
    """A version that was found loaded.

    Attributes:
        loads: what its servables were loaded with, the one with the tables first.
        routed: number of the one that answers.
        signatures: SignatureDefs by name.
    """

    loads: list[control_pb2.LoadRequest]
    routed: int
    signatures: Mapping[str, Any]


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
        self._left: list[int] = []

    def take(self, wanted: control_pb2.LoadRequest) -> Adopted | None:
        """Returns the version that a load asks for; each one once."""
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
        return Adopted(loads, routed, first.signatures.signature_def)

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
        """Notes a servable that was taken, and is needed by nobody but the routes of now."""
        with self._lock:
            self._left.append(servable)

    def rest(self) -> list[int]:
        """Returns the servables that nobody took or needs, and forgets them."""
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
        copy.ClearField("shown")  # with a cut that came since
        copy.rows.ClearField("topology")  # it may have changed since
        if copy.rows.generation:  # its record may have, too, its rows have not
            copy.rows.generation = json.loads(copy.rows.generation)["generation"]
        compared.append(copy)
    return compared[0] == compared[1]
