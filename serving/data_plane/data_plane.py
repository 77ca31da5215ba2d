"""The control process's calls to the executable that answers predictions.

`serving/native` is the executable's source, `protos/control.proto` defines the calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from hotrow.errors import UnavailableError
from hotrow.protos import control_pb2
from hotrow.serving.config.watch_options import WatchOptions
from hotrow.serving.data_plane.adoption import Adopted, Adoption
from hotrow.serving.data_plane.desired_state import Loaded
from hotrow.serving.data_plane.executable import Executable
from hotrow.serving.data_plane.heartbeat import METHOD, Heartbeat
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.data_plane.loads import Loads
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.monitoring.metrics import Family
from hotrow.serving.wire.status import Code, RequestError

_LOG = logging.getLogger(__name__)

# Of heartbeats.
_CHANNEL = (("grpc.max_reconnect_backoff_ms", 100),)


class DataPlane:
    """Versions, routes and ports of the executable, `hotrow-server`.

    When the executable ends by itself, it is restarted: it loads the same versions, gets the same
    routes and listens on the same ports (`Executable`, `DesiredState`). Calls wait until then. A
    version that cannot be loaded again is reported, and the others serve.

    Args:
        supervision: of this process; the executable outlives it.
        watch: limits for the executable's answers; None: the defaults.
        limits: of loads side by side; None: no limit of memory, and one at a time in a restart.

    Attributes:
        backend: where the executable expects the process that answers all other services.
        folder: private, for sockets that the executable connects to.
    """

    def __init__(
        self,
        supervision: Supervision,
        watch: WatchOptions | None = None,
        limits: LoadLimits | None = None,
    ) -> None:
        """Begins to start the executable, or takes over a running one.

        Raises:
            FailedPreconditionError: it is not built.
        """
        self.folder = supervision.folder
        self._public_socket = supervision.folder / "public"
        self.backend = f"unix:{supervision.folder / 'backend'}"
        watch = watch or WatchOptions()
        limits = limits or LoadLimits()
        self._executable = Executable(supervision, watch, limits)
        self._beats = grpc.insecure_channel(f"unix:{self._public_socket}", _CHANNEL)
        self._heartbeat = Heartbeat(
            self._beat, self._executable.watched, self._executable.kill_hung, watch
        )
        self._desired = self._executable.desired
        self._routing = threading.Lock()  # held while routes change
        left = self._executable.left
        self._adoption = None if left is None else Adoption(left)
        highest = self._adoption.highest if self._adoption else 0
        self._loads = Loads(self._executable, limits.reserving(), highest)

    def wait_until_started(self) -> None:
        """Returns when the executable answers; call it before any other method.

        Raises:
            UnavailableError: it does not start.
        """
        self._executable.wait_until_started()
        self._heartbeat.start()

    def begin(self) -> None:
        """Puts this process's routes into effect; call it when the first versions are loaded.

        Until then an executable that was taken over keeps the previous control process's routes.
        """
        with self._routing:
            adoption, self._adoption = self._adoption, None
            if adoption is None:
                return
            self._send_routes()
        for servable in adoption.rest():
            try:
                self.unload(servable)
            except RequestError as err:
                _LOG.warning(f"servable {servable} is not freed: {err}")

    def routed_before(self) -> dict[str, set[int]]:
        """Returns the versions, by model, that an executable taken over routes to."""
        if self._adoption is None:
            return {}
        return {
            model.name: {version.version for version in model.versions}
            for model in self._adoption.routes.models
            if model.versions
        }

    def has_begun(self) -> bool:
        """Whether this process's routes are in effect."""
        return self._adoption is None

    def adopt(
        self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]
    ) -> Adopted | None:
        """Takes over a version that a running executable has loaded; None: it has not.

        Args:
            request: as for `load`.
            lost: as for `load`.
        """
        found = None if self._adoption is None else self._adoption.take(request)
        if found is not None:
            with self._desired.lock:
                for known in found.loads:
                    self._desired.servables[known.servable] = Loaded(known, lost)
        return found

    def adopt_second(self, first: int, lost: Callable[[RequestError], None]) -> int | None:
        """Takes over a servable that uses the tables of another one; None: there is none.

        The previous control process requested it, and it was loaded after this process began.

        Args:
            first: number of the servable with the tables.
            lost: as for `load`.
        """
        described = self._executable.described()
        if described is None:
            return None
        with self._desired.lock:
            for entry in described.servables:
                number = int(entry.load.servable)
                if entry.load.shares == first and number not in self._desired.servables:
                    self._desired.servables[number] = Loaded(entry.load, lost)
                    return number
        return None

    def load(self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]) -> int:
        """Loads a version; returns the number of its servable.

        Args:
            request: without the servable.
            lost: called when the restarted executable could not load it again.

        Raises:
            ServerEndedError: the process ended during the call, and no other load can be the cause.
            HotrowError: there is not enough memory, or with the code and the message of
                TensorFlow or the store.
        """
        return self._loads.load(request, lost)

    def load_once(
        self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]
    ) -> int:
        """Loads a version beside others that serve; returns the number of its servable.

        Args:
            request: as for `load`.
            lost: as for `load`.

        Raises:
            ServerEndedError: the process ended during the call, perhaps because of it.
            HotrowError: as for `load`.
        """
        return self._loads.load_once(request, lost)

    def unload(self, servable: int) -> None:
        """Frees a servable that no route leads to, when its last request has ended.

        While the previous control process's routes lead to it, `begin` frees it instead.
        """
        self._desired.forget(servable)
        if self._executable.is_ending:
            return
        message = control_pb2.UnloadRequest(servable=servable)
        while True:
            adoption = self._adoption
            try:
                self._executable.call(control_pb2.Request(unload=message))
            except RequestError as err:
                # The process ended meanwhile, and the servable with it.
                if err.code is Code.NOT_FOUND:
                    return
                if adoption is None:
                    raise
            else:
                return
            with self._routing:
                if self._adoption is not None:
                    self._adoption.leave(servable)
                    return

    def set_routes(self, routes: control_pb2.Routes) -> None:
        """Routes requests by this table from now on."""
        with self._routing:
            self._desired.routes = routes
            if self._executable.is_ending or self._adoption is not None:
                return
            self._send_routes()

    def _send_routes(self) -> None:
        while True:
            possible = self._desired.possible_routes()
            try:
                self._executable.call(control_pb2.Request(set_routes=possible))
            except RequestError:
                # A restarted process may have lost another version meanwhile; then try again.
                if self._desired.possible_routes() == possible:
                    raise
            else:
                return

    def set_batching(self, threads: int, servables: Mapping[int, control_pb2.Batching]) -> None:
        """Sets how batches are made from now on.

        Args:
            threads: number of threads that run batches.
            servables: new parameters of servables that batch.
        """
        self._desired.set_batching(threads, servables)
        if self._executable.is_ending:
            return
        batching = control_pb2.SetBatching(threads=threads)
        for number, parameters in servables.items():
            batching.servables[number].CopyFrom(parameters)
        self._executable.call(control_pb2.Request(set_batching=batching))

    def set_topology(self, servable: int, topology: str) -> None:
        """Replaces the topology of a servable's store, whose nodes have changed."""
        with self._desired.lock:
            if self._executable.is_ending or servable not in self._desired.servables:
                return
            rows = control_pb2.Rows()
            rows.CopyFrom(self._desired.known(servable).request.rows)
            rows.topology = topology
            self._desired.change(servable, rows=rows)
        message = control_pb2.SetTopology(servable=servable, topology=topology)
        self._executable.call_if_loaded(control_pb2.Request(set_topology=message))

    def kept(self, servable: int) -> control_pb2.LoadRequest:
        """Returns the request that loads a servable again if the process restarts.

        Raises:
            RequestError: NOT_FOUND: it is not loaded any more.
        """
        return self._desired.known(servable).request

    def show(self, servable: int, cut: control_pb2.ShownCut, forget_cached: bool = False) -> None:
        """Makes a servable answer with a cut.

        No route may lead to the servable, unless only rows change. Returns when the last request
        that began before has ended.

        Args:
            servable: which.
            cut: the whole state to show.
            forget_cached: whether the rows in its cache may be older than those of the store.

        Raises:
            ServerEndedError: the process ended during the call, perhaps because of it.
            RequestError: the servable still shows its previous state.
        """
        message = control_pb2.Show(servable=servable, cut=cut, forget_cached=forget_cached)
        _, process = self._executable.call_once(control_pb2.Request(show=message))
        with self._desired.lock:
            self._executable.check_is_still(process)
            self._desired.known(servable)
            self._desired.change(servable, shown=cut)

    def set_stale(self, servable: int, stale: bool) -> None:
        """Sets whether a servable's view of its store's rows may be old."""
        if self._executable.is_ending or not self._desired.set_stale(servable, stale):
            return
        message = control_pb2.SetStale(servable=servable, stale=stale)
        self._executable.call_if_loaded(control_pb2.Request(set_stale=message))

    def set_statuses(self, statuses: control_pb2.Statuses) -> None:
        """Replaces what REST says of versions and of health.

        Raises:
            RequestError: the server is ending.
        """
        with self._desired.lock:
            self._desired.statuses = statuses
        if not self._executable.is_ending:
            self._executable.call(control_pb2.Request(set_statuses=statuses))

    def rows_before(
        self, model: str, version: int, path: str, store: str
    ) -> control_pb2.Rows | None:
        """Returns how an executable taken over reads a version's rows, if it has the version."""
        if self._adoption is None:
            return None
        return self._adoption.rows_of(model, version, path, store)

    def loaded(self) -> dict[int, control_pb2.LoadRequest]:
        """Returns the requests that loaded the current servables, by number."""
        with self._desired.lock:
            return {number: entry.request for number, entry in self._desired.servables.items()}

    def listen(self, **request: Any) -> None:
        """Opens ports.

        Args:
            request: fields of ListenRequest except the backend; the internal socket is added.

        Raises:
            UnavailableError: a port or a socket is taken or not allowed.
        """
        message = control_pb2.ListenRequest(backend=self.backend, **request)
        message.socket_paths.append(str(self._public_socket))
        left = self._executable.described()
        try:
            if left is None or not left.HasField("listening"):
                self._executable.call(control_pb2.Request(listen=message))
        except RequestError as err:
            of_rest = message.HasField("rest") and f"port {message.rest.port} " in str(err)
            what = "REST" if of_rest else "gRPC"
            raise UnavailableError(f"{what} cannot start: {err}; choose another one") from err
        self._desired.listening = message

    def trouble(self) -> str:
        """Returns why the process does not answer predictions; "": it does, or does not run."""
        return "hotrow-server does not answer" if self._heartbeat.is_silent() else ""

    def families(self) -> list[Family]:
        """Returns the metrics of the process that no process can count itself."""
        return [*self._executable.families(), *self._heartbeat.families()]

    def stats(self) -> control_pb2.StatsReply | None:
        """Returns the process's counts; None when it does not answer now."""
        return None if self._heartbeat.is_silent() else self._executable.stats()

    def stop(self, drain_seconds: float) -> None:
        """Refuses new requests; ends the process after the running ones, or when time is up."""
        self._heartbeat.close()
        self._executable.stop(drain_seconds)
        self._beats.close()

    def _beat(self) -> None:
        """Asks the process once, along the path of a prediction if it listens."""
        if self._desired.listening is not None and self._executable.serves():
            self._beats.unary_unary(METHOD)(b"")
        elif self._executable.described() is None:
            raise ConnectionRefusedError
