"""What the executable should have: servables, routes, ports, and threads for batches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from hotrow.protos import control_pb2
from hotrow.serving.wire.status import Code, RequestError

Ask = Callable[[control_pb2.Request], control_pb2.Reply]
Lost = Callable[[RequestError], None]


@dataclass(frozen=True)
class Loaded:
    """A servable that the executable has, and whom to notify when it cannot have it again."""

    request: control_pb2.LoadRequest
    lost: Lost

    def but(self, **fields: Message) -> Loaded:
        """Returns it as if it had been asked for with other fields."""
        request = control_pb2.LoadRequest()
        request.CopyFrom(self.request)
        for name, value in fields.items():
            getattr(request, name).CopyFrom(value)
        return Loaded(request, self.lost)


class DesiredState:
    """Of one executable; what a new one gets when it has ended.

    Attributes:
        lock: of all that is here. Hold it where several values belong together.
        servables: by number.
        routes: that the control process wants.
        listening: the ports; None: not yet.
    """

    def __init__(self, lock: threading.Condition) -> None:
        """Begins with nothing."""
        self.lock = lock
        self.servables: dict[int, Loaded] = {}
        self.routes = control_pb2.Routes()
        self.listening: control_pb2.ListenRequest | None = None
        self._stale: set[int] = set()
        self._batch_threads = 0

    def known(self, servable: int) -> Loaded:
        """Returns a servable.

        Raises:
            RequestError: NOT_FOUND: it is not loaded any more.
        """
        with self.lock:
            if servable not in self.servables:
                raise RequestError(Code.NOT_FOUND, f"servable {servable} is not loaded any more")
            return self.servables[servable]

    def change(self, servable: int, **fields: Message) -> bool:
        """Changes fields of the request that a servable is loaded by; False: it is not loaded."""
        with self.lock:
            known = self.servables.get(servable)
            if known is not None:
                self.servables[servable] = known.but(**fields)
            return known is not None

    def forget(self, servable: int) -> None:
        """Takes a servable out."""
        with self.lock:
            self.servables.pop(servable, None)
            self._stale.discard(servable)

    def set_stale(self, servable: int, stale: bool) -> bool:
        """Says whether a servable's rows may be old; False: it is not loaded."""
        with self.lock:
            if servable not in self.servables:
                return False
            (self._stale.add if stale else self._stale.discard)(servable)
            return True

    def set_batching(self, threads: int, servables: Mapping[int, control_pb2.Batching]) -> None:
        """Sets the threads for batches, and parameters of servables."""
        with self.lock:
            self._batch_threads = threads
            for number, parameters in servables.items():
                self.change(number, batching=parameters)

    def possible_routes(self) -> control_pb2.Routes:
        """Returns the routes without those to servables that were lost."""
        kept = control_pb2.Routes()
        with self.lock:
            kept.CopyFrom(self.routes)
            for model in kept.models:
                versions = [v for v in model.versions if v.servable in self.servables]
                if len(versions) < len(model.versions):
                    del model.versions[:]
                    model.versions.extend(versions)
        return kept

    def restore(self, ask: Ask) -> None:
        """Gives a new process all of it. A servable that it cannot load is lost.

        Args:
            ask: asks the new process, which nobody else does yet.

        Raises:
            OSError, RequestError: the process ended, or refuses routes or ports.
        """
        with self.lock:
            servables, listening = dict(self.servables), self.listening
            batching = control_pb2.SetBatching(threads=self._batch_threads)
            stale = [control_pb2.SetStale(servable=n, stale=True) for n in self._stale]
        ask(control_pb2.Request(set_batching=batching))
        for number, entry in servables.items():
            try:
                ask(control_pb2.Request(load=entry.request))
            except RequestError as err:
                self.forget(number)
                # Who is notified will ask for other routes, which waits for the end of this.
                threading.Thread(target=entry.lost, args=[err], daemon=True).start()
        for silent in stale:
            with contextlib.suppress(RequestError):  # that one is lost
                ask(control_pb2.Request(set_stale=silent))
        ask(control_pb2.Request(set_routes=self.possible_routes()))
        if listening is not None:
            ask(control_pb2.Request(listen=listening))
