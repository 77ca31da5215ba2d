"""The executable that answers predictions: started, controlled, and started again if it ends.

`serving/native` is its source, `protos/control.proto` what it can be asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from hotrow.errors import UnavailableError
from hotrow.protos import control_pb2
from hotrow.serving.data_plane.adoption import Adopted, Adoption
from hotrow.serving.data_plane.control_socket import ask
from hotrow.serving.data_plane.server_process import ServerProcess, start_server
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.wire.status import Code, RequestError

_LOG = logging.getLogger(__name__)

_START_SECONDS = 60.0
# Between two looks at whether it answers.
_LOOK_SECONDS = 0.005
# For what comes after the last request.
_END_SECONDS = 5.0
# After a crash, and again while it keeps ending.
_RESTART_SECONDS = (0.05, 0.5, 2.0, 5.0)
_STATS_SECONDS = 5.0
_HOST = "0.0.0.0"
_CHANNEL = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Whole messages of TensorFlow's errors are longer than what gRPC allows by itself.
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.max_reconnect_backoff_ms", 100),
)


def check_port_is_free(port: int, flag: str) -> None:
    """Refuses a port that cannot be listened on, before anything slow begins.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen(1)
        except OSError as err:
            raise UnavailableError(
                f"{flag} {port} cannot be used: {err.strerror}; choose another port"
            ) from err


class ServerEndedError(RequestError):
    """The process ended while it did something that it may end by, so nobody asked again."""

    def __init__(self) -> None:
        super().__init__(Code.UNAVAILABLE, "hotrow-server ended meanwhile")


@dataclass(frozen=True)
class _Loaded:
    """A version that the process has loaded, and whom to notify when it cannot have it again."""

    request: control_pb2.LoadRequest
    lost: Callable[[RequestError], None]

    def but(self, **fields: Message) -> _Loaded:
        """Returns it as if it had been asked for with other fields."""
        request = control_pb2.LoadRequest()
        request.CopyFrom(self.request)
        for name, value in fields.items():
            getattr(request, name).CopyFrom(value)
        return _Loaded(request, self.lost)


class DataPlane:
    """The process `hotrow-server`.

    When it ends by itself it is started again: it loads what was loaded, gets the same routes and
    listens on the same ports; calls meanwhile wait for that. A version that it cannot load again
    is reported, and the others serve.

    Args:
        supervision: of this process; the executable outlives it.

    Attributes:
        address: where PredictionService answers in this machine, once it listens.
        backend: where it expects the process that answers all other services.
        folder: private, for sockets that it connects to.
    """

    def __init__(self, supervision: Supervision) -> None:
        """Begins to start it, or finds the one of a control process before this one.

        Raises:
            FailedPreconditionError: it is not built.
        """
        self._lifeline = supervision.lifeline
        self.folder = supervision.folder
        self._control_socket = supervision.folder / "control"
        self._public_socket = supervision.folder / "public"
        self._greetings = supervision.folder / "greetings"
        self.address = f"unix:{self._public_socket}"
        self.backend = f"unix:{supervision.folder / 'backend'}"
        self._changed = threading.Condition()
        self._loaded: dict[int, _Loaded] = {}
        self._routes = control_pb2.Routes()
        self._routing = threading.Lock()  # from a change of the routes until it is done
        self._listening: control_pb2.ListenRequest | None = None
        self._stale: set[int] = set()
        self._batch_threads = 0
        self._ending = False
        self._up = True
        left = self._described()
        self._adoption = None if left is None else Adoption(left)
        self._numbers = itertools.count(1 + (self._adoption.highest if self._adoption else 0))
        self._process = self._spawned() if left is None else ServerProcess(left.process_id)
        self._watch = threading.Thread(target=self._keep_up, name="data-plane", daemon=True)

    def wait_until_started(self) -> None:
        """Returns when it answers; comes before everything else.

        Raises:
            UnavailableError: it does not start.
        """
        self._wait_for_start_of(self._process)
        self._watch.start()

    def begin(self) -> None:
        """The first versions are there: requests go where the routes of now lead.

        Until then those of an executable that was found go where they went before.
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
        """Returns the versions, by model, that an executable that was found routes to."""
        if self._adoption is None:
            return {}
        return {
            model.name: {version.version for version in model.versions}
            for model in self._adoption.routes.models
            if model.versions
        }

    def has_begun(self) -> bool:
        """Whether routes are those of this control process already."""
        return self._adoption is None

    def adopt(
        self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]
    ) -> Adopted | None:
        """Takes a version over that an executable that was found has; None: it has not.

        Args:
            request: as for `load`.
            lost: as for `load`.
        """
        found = None if self._adoption is None else self._adoption.take(request)
        if found is not None:
            with self._changed:
                for known in found.loads:
                    self._loaded[known.servable] = _Loaded(known, lost)
        return found

    def adopt_second(self, first: int, lost: Callable[[RequestError], None]) -> int | None:
        """Takes a servable over that uses the tables of another one; None: there is none.

        A control process before this one has asked for it, and it was loaded since this one began.

        Args:
            first: the other one.
            lost: as for `load`.
        """
        described = self._described()
        if described is None:
            return None
        with self._changed:
            for entry in described.servables:
                number = int(entry.load.servable)
                if entry.load.shares == first and number not in self._loaded:
                    self._loaded[number] = _Loaded(entry.load, lost)
                    return number
        return None

    def load(
        self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]
    ) -> tuple[int, Mapping[str, Any]]:
        """Loads a version; returns the number of its servable and its signatures by name.

        Args:
            request: without the servable.
            lost: called when the process was started again and could not load it once more.

        Raises:
            RequestError: with the code and the message of TensorFlow or the store.
        """
        message = control_pb2.LoadRequest()
        message.CopyFrom(request)
        while True:
            message.servable = next(self._numbers)
            reply, process = self._call_process(control_pb2.Request(load=message))
            with self._changed:
                # Else the process has ended meanwhile, and the next one does not know of it.
                if self._process is process and (self._up or self._ending):
                    self._loaded[message.servable] = _Loaded(message, lost)
                    return message.servable, reply.load.signatures.signature_def

    def load_once(
        self, request: control_pb2.LoadRequest, lost: Callable[[RequestError], None]
    ) -> int:
        """Loads a version beside others that serve; returns the number of its servable.

        Args:
            request: as for `load`.
            lost: as for `load`.

        Raises:
            ServerEndedError: the process ended meanwhile, perhaps by it.
            RequestError: as for `load`.
        """
        message = control_pb2.LoadRequest()
        message.CopyFrom(request)
        message.servable = next(self._numbers)
        _, process = self._ask_once(control_pb2.Request(load=message))
        with self._changed:
            self._check_is_up(process)
            self._loaded[message.servable] = _Loaded(message, lost)
        return message.servable

    def unload(self, servable: int) -> None:
        """Frees a servable that no route leads to, when its last request has ended.

        While routes of a control process before this one lead to it, it is left to `begin`.
        """
        with self._changed:
            self._loaded.pop(servable, None)
            self._stale.discard(servable)
            if self._ending:
                return
        message = control_pb2.UnloadRequest(servable=servable)
        while True:
            adoption = self._adoption
            try:
                self._call(control_pb2.Request(unload=message))
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
        """Requests go where this table leads."""
        with self._routing:
            with self._changed:
                self._routes = routes
                if self._ending or self._adoption is not None:
                    return
            self._send_routes()

    def _send_routes(self) -> None:
        while True:
            kept = self._loaded_routes(self._routes)
            try:
                self._call(control_pb2.Request(set_routes=kept))
            except RequestError:
                # Unless another version was lost meanwhile, by a process that was started again.
                if self._loaded_routes(self._routes) == kept:
                    raise
            else:
                return

    def set_batching(self, threads: int, servables: Mapping[int, control_pb2.Batching]) -> None:
        """Batches are made like this from now on.

        Args:
            threads: that run them.
            servables: those that batch, with parameters other than before.
        """
        batching = control_pb2.SetBatching(threads=threads)
        with self._changed:
            self._batch_threads = threads
            for number, parameters in servables.items():
                batching.servables[number].CopyFrom(parameters)
                if number in self._loaded:
                    self._loaded[number] = self._loaded[number].but(batching=parameters)
            if self._ending:
                return
        self._call(control_pb2.Request(set_batching=batching))

    def set_topology(self, servable: int, topology: str) -> None:
        """The nodes of a servable's store are others now."""
        with self._changed:
            known = self._loaded.get(servable)
            if known is None or self._ending:
                return
            rows = control_pb2.Rows()
            rows.CopyFrom(known.request.rows)
            rows.topology = topology
            self._loaded[servable] = known.but(rows=rows)
        message = control_pb2.SetTopology(servable=servable, topology=topology)
        try:
            self._call(control_pb2.Request(set_topology=message))
        except RequestError as err:
            # It was unloaded meanwhile.
            if err.code is not Code.NOT_FOUND:
                raise

    def kept(self, servable: int) -> control_pb2.LoadRequest:
        """Returns what a servable would be loaded by if the process was started again now.

        Raises:
            RequestError: NOT_FOUND: it is not loaded any more.
        """
        with self._changed:
            return self._known(servable).request

    def show(self, servable: int, cut: control_pb2.ShownCut, forget_cached: bool = False) -> None:
        """Makes a servable answer with a cut, which no route leads to, unless rows alone change.

        Returns when its last request before has ended.

        Args:
            servable: which.
            cut: all that it is to show.
            forget_cached: whether the rows in its cache may be older than those of the store.

        Raises:
            ServerEndedError: the process ended meanwhile, perhaps by it.
            RequestError: it shows what it showed before.
        """
        message = control_pb2.Show(servable=servable, cut=cut, forget_cached=forget_cached)
        _, process = self._ask_once(control_pb2.Request(show=message))
        with self._changed:
            self._check_is_up(process)
            self._loaded[servable] = self._known(servable).but(shown=cut)

    def set_stale(self, servable: int, stale: bool) -> None:
        """Says whether what a servable knows of its store's rows may be old."""
        with self._changed:
            if servable not in self._loaded or self._ending:
                return
            (self._stale.add if stale else self._stale.discard)(servable)
        message = control_pb2.SetStale(servable=servable, stale=stale)
        try:
            self._call(control_pb2.Request(set_stale=message))
        except RequestError as err:
            # It was unloaded meanwhile.
            if err.code is not Code.NOT_FOUND:
                raise

    def _known(self, servable: int) -> _Loaded:
        if servable not in self._loaded:
            raise RequestError(Code.NOT_FOUND, f"servable {servable} is not loaded any more")
        return self._loaded[servable]

    def rows_before(
        self, model: str, version: int, path: str, store: str
    ) -> control_pb2.Rows | None:
        """Returns how an executable that was found reads a version's rows, if it has it."""
        if self._adoption is None:
            return None
        return self._adoption.rows_of(model, version, path, store)

    def loaded(self) -> dict[int, control_pb2.LoadRequest]:
        """Returns the requests by which the servables of now were loaded, by their numbers."""
        with self._changed:
            return {number: loaded.request for number, loaded in self._loaded.items()}

    def _loaded_routes(self, routes: control_pb2.Routes) -> control_pb2.Routes:
        """Returns the routes without those to versions that were lost."""
        kept = control_pb2.Routes()
        kept.CopyFrom(routes)
        with self._changed:
            for model in kept.models:
                versions = [v for v in model.versions if v.servable in self._loaded]
                if len(versions) < len(model.versions):
                    del model.versions[:]
                    model.versions.extend(versions)
        return kept

    def listen(self, **request: Any) -> None:
        """Opens ports.

        Args:
            request: fields of ListenRequest but the backend; its own socket is added.

        Raises:
            UnavailableError: a port or a socket is taken or not allowed.
        """
        message = control_pb2.ListenRequest(backend=self.backend, **request)
        message.socket_paths.append(str(self._public_socket))
        left = self._described()
        try:
            if left is None or not left.HasField("listening"):
                self._call(control_pb2.Request(listen=message))
        except RequestError as err:
            raise UnavailableError(f"gRPC cannot start: {err}; choose another one") from err
        with self._changed:
            self._listening = message

    def serves(self) -> bool:
        """Returns whether the process is there; it is not while it is started again."""
        with self._changed:
            return self._up and not self._ending

    def stats(self) -> control_pb2.StatsReply | None:
        """Returns what the process has counted; None when it does not answer now."""
        if not self.serves():
            return None
        request = control_pb2.Request(stats=control_pb2.StatsRequest())
        try:
            return ask(self._control_socket, request, _STATS_SECONDS).stats
        except (OSError, RequestError):
            return None

    def channel(self) -> grpc.Channel:
        """Returns a channel to its PredictionService."""
        return grpc.insecure_channel(self.address, _CHANNEL)

    def stop(self, drain_seconds: float) -> None:
        """Takes no new request, and ends it when the running ones ended or the time is up."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        try:
            drain = control_pb2.DrainRequest(most_millis=int(1000 * drain_seconds))
            ask(
                self._control_socket,
                control_pb2.Request(drain=drain),
                timeout_seconds=drain_seconds + _END_SECONDS,
            )
            if not self._process.wait(_END_SECONDS):
                self._process.kill()
        except (OSError, RequestError):
            # A run that does not end; or the process has just ended by itself.
            self._process.kill()
        self._watch.join()

    def _spawned(self) -> ServerProcess:
        # What TensorFlow says while it starts is kept, for when it does not.
        return start_server(self._control_socket, self._greetings, self._lifeline)

    def _wait_for_start_of(self, process: ServerProcess) -> None:
        waited = 0.0
        while self._described() is None:
            if process.wait(_LOOK_SECONDS) or waited > _START_SECONDS:
                process.kill()
                said = self._greetings.read_text(errors="replace")
                raise UnavailableError(
                    f"hotrow-server does not start ({process.exit_text()}): {said}"
                )
            waited += _LOOK_SECONDS

    def _described(self) -> control_pb2.DescribeReply | None:
        """Returns what a process has that answers; None when none does."""
        request = control_pb2.Request(describe=control_pb2.DescribeRequest())
        try:
            return ask(self._control_socket, request).describe
        except OSError:
            return None

    def _call(self, request: control_pb2.Request) -> control_pb2.Reply:
        """Calls, and once more for each time that the process ended meanwhile."""
        return self._call_process(request)[0]

    def _call_process(
        self, request: control_pb2.Request
    ) -> tuple[control_pb2.Reply, ServerProcess]:
        """Calls like `_call`; returns the process that answered, too."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._up or self._ending)
                process = self._process
            try:
                return ask(self._control_socket, request), process
            except OSError as err:
                if self._ending:
                    raise RequestError(Code.UNAVAILABLE, f"the server is ending: {err}") from err
                with self._changed:
                    while self._process is process and not self._ending:
                        self._changed.wait()

    def _ask_once(self, request: control_pb2.Request) -> tuple[control_pb2.Reply, ServerProcess]:
        with self._changed:
            self._changed.wait_for(lambda: self._up or self._ending)
            process = self._process
        try:
            return ask(self._control_socket, request), process
        except OSError as err:
            raise ServerEndedError from err

    def _check_is_up(self, process: ServerProcess) -> None:
        if self._process is not process or not self._up:
            raise ServerEndedError

    def _keep_up(self) -> None:
        attempts = 0
        while True:
            self._process.wait()
            with self._changed:
                if self._ending:
                    self._changed.notify_all()
                    return
                self._up = False
            pause = _RESTART_SECONDS[min(attempts, len(_RESTART_SECONDS) - 1)]
            attempts += 1
            _LOG.error(
                f"hotrow-server ended ({self._process.exit_text()}); starting it again in "
                f"{pause:g} s"
            )
            if self._ends_within(pause):
                return
            try:
                self._restore()
            except Exception as err:
                _LOG.error(f"hotrow-server could not be started again: {err}")
                self._process.kill()
                continue
            attempts = 0
            _LOG.info("hotrow-server serves again")

    def _ends_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ending, seconds)

    def _restore(self) -> None:
        """Starts a process that has what the last one had."""
        process = self._spawned()
        self._wait_for_start_of(process)
        with self._changed:
            loaded, routes, listening = dict(self._loaded), self._routes, self._listening
            batching = control_pb2.SetBatching(threads=self._batch_threads)
            stale = [control_pb2.SetStale(servable=n, stale=True) for n in self._stale & {*loaded}]
        try:
            ask(self._control_socket, control_pb2.Request(set_batching=batching))
            for number, entry in loaded.items():
                try:
                    ask(self._control_socket, control_pb2.Request(load=entry.request))
                except RequestError as err:
                    with self._changed:
                        self._loaded.pop(number, None)
                    # Who is notified will ask for other routes, which waits for the end of this.
                    threading.Thread(target=entry.lost, args=[err], daemon=True).start()
            for silent in stale:
                with contextlib.suppress(RequestError):  # that one is lost
                    ask(self._control_socket, control_pb2.Request(set_stale=silent))
            ask(
                self._control_socket,
                control_pb2.Request(set_routes=self._loaded_routes(routes)),
            )
            if listening is not None:
                ask(self._control_socket, control_pb2.Request(listen=listening))
        except (OSError, RequestError):
            process.kill()
            raise
        with self._changed:
            self._process = process
            self._up = True
            if self._ending:
                process.kill()
            self._changed.notify_all()
