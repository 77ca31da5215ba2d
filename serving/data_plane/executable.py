"""The process `hotrow-server`: started, called over a socket, and restarted if it ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from hotrow.errors import UnavailableError
from hotrow.protos import control_pb2
from hotrow.serving.config.watch_options import WatchOptions
from hotrow.serving.data_plane.control_socket import ask, listener_of
from hotrow.serving.data_plane.desired_state import DesiredState
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.data_plane.load_turns import LoadTurns
from hotrow.serving.data_plane.server_process import ServerProcess, start_server
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.monitoring.metrics import Family, Kind
from hotrow.serving.wire.status import Code, RequestError

_LOG = logging.getLogger(__name__)

_START_SECONDS = 60.0
# Between two checks whether it answers.
_LOOK_SECONDS = 0.005
# For its end after the last request.
_END_SECONDS = 5.0
# After a crash, and again while it keeps ending.
_RESTART_SECONDS = (0.05, 0.5, 2.0, 5.0)
_STATS_SECONDS = 5.0
# They wait for disks, stores and the last request of a servable.
_LONG_CALLS = ("load", "unload", "show")


class ServerEndedError(RequestError):
    """The process ended during a call that may have ended it; the call was not repeated.

    Args:
        how: how the process ended.
    """

    def __init__(self, how: str) -> None:
        super().__init__(Code.UNAVAILABLE, f"hotrow-server ended ({how}) meanwhile")


class Executable:
    """Calls wait while the process restarts; the new one gets the desired state first.

    Args:
        supervision: of this process; the executable outlives it.
        watch: limits for its answers.
        limits: of loads in a restart.

    Attributes:
        desired: the state that the process should have; both classes use one lock.
        turns: of loads.
        left: the state of a process that was taken over; None: this object started the process.
    """

    def __init__(self, supervision: Supervision, watch: WatchOptions, limits: LoadLimits) -> None:
        """Begins to start the process, or takes over a running one.

        Raises:
            FailedPreconditionError: it is not built.
        """
        self._watch_options = watch
        self._lifeline = supervision.lifeline
        self._socket = supervision.folder / "control"
        # TensorFlow's output during the start, for the error if the process does not start.
        self._greetings = supervision.folder / "greetings"
        self._changed = threading.Condition()
        self.desired = DesiredState(self._changed, limits)
        self.turns = LoadTurns()
        self._ending = False
        self._up = True
        self._starting: ServerProcess | None = None  # that answers and is not up yet
        self._restarts = Family("hotrow_server_restarts_total", Kind.COUNTER, ())
        self.left = self._left()
        self._process = (
            self._spawned() if self.left is None else ServerProcess(self.left.process_id)
        )
        self._watch = threading.Thread(target=self._keep_up, name="data-plane", daemon=True)

    def wait_until_started(self) -> None:
        """Returns when the process answers; call it before any other method.

        Raises:
            UnavailableError: it does not start.
        """
        self._wait_for_start_of(self._process)
        self._watch.start()

    def serves(self) -> bool:
        """Returns whether the process runs; False while it restarts."""
        with self._changed:
            return self._up and not self._ending

    def watched(self) -> ServerProcess | None:
        """Returns the process that should answer control calls now; None: there is none."""
        with self._changed:
            if self._ending:
                return None
            return self._process if self._up else self._starting

    def kill_hung(self, process: ServerProcess, why: str) -> None:
        """Kills a process that does not answer; then it is restarted like one that ended."""
        if self.watched() is process:
            _LOG.error(f"hotrow-server {why}; killing it")
            process.kill()

    def families(self) -> list[Family]:
        """Returns the metrics."""
        with self._changed:
            restarts = Family(self._restarts.name, Kind.COUNTER, ())
            restarts.merge(self._restarts.cells)
        return [restarts, *self.turns.families()]

    @property
    def is_ending(self) -> bool:
        """Whether `stop` was called; the process refuses new requests from then on."""
        return self._ending

    def described(self) -> control_pb2.DescribeReply | None:
        """Returns the state of the running process; None when no process answers."""
        request = control_pb2.Request(describe=control_pb2.DescribeRequest())
        try:
            return ask(self._socket, request, self._limit_of(request)).describe
        except OSError:
            return None

    def _left(self) -> control_pb2.DescribeReply | None:
        """Returns the state of a process that can be taken over; kills one that does not answer."""
        request = control_pb2.Request(describe=control_pb2.DescribeRequest())
        try:
            return ask(self._socket, request, self._limit_of(request)).describe
        except TimeoutError as err:
            _LOG.error(f"hotrow-server does not answer the new control process ({err}); killing it")
            with contextlib.suppress(OSError):
                ServerProcess(listener_of(self._socket)).kill()
            return None
        except OSError:
            return None

    def _limit_of(self, request: control_pb2.Request) -> float | None:
        """Returns the time that the process has for a call; None: no limit."""
        options = self._watch_options
        long = request.WhichOneof("call") in _LONG_CALLS
        return (options.load_timeout_seconds if long else options.restart_after_seconds) or None

    def stats(self) -> control_pb2.StatsReply | None:
        """Returns the process's counts; None when it does not answer now."""
        if not self.serves():
            return None
        request = control_pb2.Request(stats=control_pb2.StatsRequest())
        try:
            return ask(self._socket, request, _STATS_SECONDS).stats
        except (OSError, RequestError):
            return None

    def call(self, request: control_pb2.Request) -> tuple[control_pb2.Reply, ServerProcess]:
        """Makes a call, and repeats it each time that the process ended meanwhile.

        Returns:
            The answer, and the process that gave it.
        """
        while True:
            process = self._process_of_now()
            try:
                return self._asked(request, process), process
            except OSError as err:
                self._wait_for_another(process, err)

    def call_once(self, request: control_pb2.Request) -> tuple[control_pb2.Reply, ServerProcess]:
        """Makes a call as `call` does, but never repeats one that the process has received.

        Raises:
            ServerEndedError: the process ended during the call, perhaps because of it.
            RequestError: the server is ending, or refuses the call.
        """
        while True:
            process = self._process_of_now()
            try:
                return self._asked(request, process), process
            except (ConnectionRefusedError, FileNotFoundError) as err:
                self._wait_for_another(process, err)  # it had ended before
            except OSError as err:
                if self._ending:
                    raise RequestError(Code.UNAVAILABLE, f"the server is ending: {err}") from err
                raise self.ended(process) from err

    def ended(self, process: ServerProcess) -> ServerEndedError:
        """Returns the error of a call during which the process ended."""
        process.wait(_END_SECONDS)
        return ServerEndedError(process.exit_text())

    def call_if_loaded(self, request: control_pb2.Request) -> None:
        """Makes a call about a servable that may have been unloaded meanwhile."""
        try:
            self.call(request)
        except RequestError as err:
            if err.code is not Code.NOT_FOUND:
                raise

    def wait_until_up(self) -> None:
        """Returns when the process runs, or the server is ending."""
        self._process_of_now()

    def check_is_still(self, process: ServerProcess) -> None:
        """Raises `ServerEndedError` unless this process still runs. Hold the lock."""
        if not self.is_still(process):
            raise self.ended(process)

    def is_still(self, process: ServerProcess) -> bool:
        """Whether this process still runs, so that its changes last. Hold the lock."""
        return self._process is process and self._up

    def stop(self, drain_seconds: float) -> None:
        """Refuses new requests; ends the process after the running ones, or when time is up."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        drain = control_pb2.DrainRequest(most_millis=int(1000 * drain_seconds))
        try:
            ask(self._socket, control_pb2.Request(drain=drain), drain_seconds + _END_SECONDS)
            if not self._process.wait(_END_SECONDS):
                self._process.kill()
        except (OSError, RequestError):
            # A request does not end, or the process has just ended by itself.
            self._process.kill()
        self._watch.join()

    def _asked(self, request: control_pb2.Request, process: ServerProcess) -> control_pb2.Reply:
        """Returns the answer to a call; kills a process that does not answer a brief one.

        Raises:
            RequestError: the call is refused, or a long one has reached its limit.
            OSError: the process ended during the call.
        """
        limit = self._limit_of(request)
        try:
            return ask(self._socket, request, limit)
        except TimeoutError as err:
            call = request.WhichOneof("call")
            if call in _LONG_CALLS:
                raise RequestError(
                    Code.DEADLINE_EXCEEDED,
                    f"hotrow-server has not finished the call {call} within {limit:g} s "
                    "(--load_timeout_seconds)",
                ) from err
            self.kill_hung(process, f"has not answered the call {call} for {limit:g} s")
            raise

    def _wait_for_another(self, process: ServerProcess, err: OSError) -> None:
        """Waits for the process after one that has ended.

        Raises:
            RequestError: the server is ending.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._process is not process)
            if self._ending:
                raise RequestError(Code.UNAVAILABLE, f"the server is ending: {err}") from err

    def _process_of_now(self) -> ServerProcess:
        with self._changed:
            self._changed.wait_for(lambda: self._up or self._ending)
            return self._process

    def _spawned(self) -> ServerProcess:
        return start_server(self._socket, self._greetings, self._lifeline)

    def _wait_for_start_of(self, process: ServerProcess) -> None:
        end = time.monotonic() + _START_SECONDS
        while self.described() is None:
            if process.wait(_LOOK_SECONDS) or time.monotonic() > end:
                process.kill()
                said = self._greetings.read_text(errors="replace")
                raise UnavailableError(
                    f"hotrow-server does not start ({process.exit_text()}): {said}"
                )

    def _keep_up(self) -> None:
        attempts = 0
        while True:
            self._process.wait()
            with self._changed:
                if self._ending:
                    self._changed.notify_all()
                    return
                self._up = False
                self._restarts.add(())
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
        """Starts a process and brings it to the desired state."""
        process = self._spawned()
        self._wait_for_start_of(process)
        with self._changed:
            self._starting = process
        try:
            self.desired.restore(lambda r: ask(self._socket, r, self._limit_of(r)))
        except (OSError, RequestError):
            with self._changed:
                self._starting = None
            process.kill()
            if (blamed := self.desired.blame(self.ended(process))) is not None:
                self.turns.count(blamed.model, blamed.version)
            raise
        with self._changed:
            self._process = process
            self._starting = None
            self._up = True
            if self._ending:
                process.kill()
            self._changed.notify_all()
