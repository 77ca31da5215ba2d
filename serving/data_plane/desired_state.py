"""What the executable should have: servables, routes, ports, and threads for batches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.data_plane.restart_loads import Ask, RestartLoads
from hotrow.serving.wire.status import Code, RequestError

Lost = Callable[[RequestError], None]


@dataclass(frozen=True)
class Loaded:
    """A servable of the executable, and the callback for when it cannot be loaded again."""

    request: control_pb2.LoadRequest
    lost: Lost

    def but(self, **fields: Message) -> Loaded:
        """Returns a copy whose request has other fields."""
        request = control_pb2.LoadRequest()
        request.CopyFrom(self.request)
        for name, value in fields.items():
            getattr(request, name).CopyFrom(value)
        return Loaded(request, self.lost)


class DesiredState:
    """The state of one executable; after a restart the new process gets all of it.

    Attributes:
        lock: guards everything here. Hold it where several values belong together.
        servables: by number.
        routes: the routes that the control process wants.
        listening: the ports; None: not yet.
        statuses: what REST says of versions and health.
    """

    def __init__(self, lock: threading.Condition, limits: LoadLimits) -> None:
        """Begins with an empty state."""
        self.lock = lock
        self.servables: dict[int, Loaded] = {}
        self.routes = control_pb2.Routes()
        self.listening: control_pb2.ListenRequest | None = None
        self.statuses = control_pb2.Statuses()
        self._stale: set[int] = set()
        self._batch_threads = 0
        self._loads = RestartLoads(limits)

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
        """Changes fields of a servable's load request; False: it is not loaded."""
        with self.lock:
            known = self.servables.get(servable)
            if known is not None:
                self.servables[servable] = known.but(**fields)
            return known is not None

    def forget(self, servable: int) -> None:
        """Removes a servable."""
        with self.lock:
            self.servables.pop(servable, None)
            self._stale.discard(servable)
        self._loads.forget(servable)

    def set_stale(self, servable: int, stale: bool) -> bool:
        """Sets whether a servable's rows may be old; False: it is not loaded."""
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
        """Brings a new process to this state. A servable that it cannot load is lost.

        Args:
            ask: calls the new process, which nothing else calls yet.

        Raises:
            OSError, RequestError: the process ended, or refuses routes or ports.
        """
        with self.lock:
            servables, listening = dict(self.servables), self.listening
            batching = control_pb2.SetBatching(threads=self._batch_threads)
            stale = [control_pb2.SetStale(servable=n, stale=True) for n in self._stale]
        ask(control_pb2.Request(set_batching=batching))
        self._loads.run(
            {number: entry.request for number, entry in servables.items()},
            ask,
            lambda number, err: self._lose(number, servables[number], err),
        )
        for silent in stale:
            with contextlib.suppress(RequestError):  # the servable is lost
                ask(control_pb2.Request(set_stale=silent))
        ask(control_pb2.Request(set_statuses=self._possible_statuses()))
        ask(control_pb2.Request(set_routes=self.possible_routes()))
        if listening is not None:
            ask(control_pb2.Request(listen=listening))

    def blame(self, error: RequestError) -> control_pb2.LoadRequest | None:
        """Notes that the new process ended during `restore`; returns the load that it ended in.

        None: several loads were under way; each of them is repeated alone. A load that was alone is
        repeated once, since the process may have ended for another reason. The second time the
        servable is lost, so that the others serve.

        Args:
            error: how the process ended.
        """
        number, too_often = self._loads.blame()
        with self.lock:
            entry = None if number is None else self.servables.get(number)
            if number is None or entry is None:
                return None
            if too_often:
                self._lose(number, entry, error)
            return entry.request

    def _possible_statuses(self) -> control_pb2.Statuses:
        """Returns the statuses for a new process, in which versions that were lost load."""
        statuses = control_pb2.Statuses()
        with self.lock:
            statuses.CopyFrom(self.statuses)
            routes = self.possible_routes()
        statuses.trouble = ""  # the former process's
        routed = {(model.name, each.version) for model in routes.models for each in model.versions}
        for model in statuses.models:
            for each in model.versions.model_version_status:
                if (
                    each.state == ModelVersionStatus.AVAILABLE
                    and (model.name, each.version) not in routed
                ):
                    each.state = ModelVersionStatus.LOADING
        return statuses

    def _lose(self, number: int, entry: Loaded, error: RequestError) -> None:
        self.forget(number)
        # In a thread: the callback changes routes, and that waits until the process is restored.
        threading.Thread(target=entry.lost, args=[error], daemon=True).start()
