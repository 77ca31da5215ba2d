"""Loads of a restarted executable: side by side, and which of them ended it again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from hotrow.errors import HotrowError
from hotrow.protos import control_pb2
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.wire.status import RequestError, as_request_error

Ask = Callable[[control_pb2.Request], control_pb2.Reply]
Refused = Callable[[int, RequestError], None]

# Of loads of one servable in new processes, alone; then it is lost.
_MOST_CRASHES = 2


class RestartLoads:
    """Loads the servables of a process into the next one.

    When that ends, too, any load that was under way may be the cause. As in `LoadTurns`, these
    become suspects, and each is repeated alone.
    """

    def __init__(self, limits: LoadLimits) -> None:
        self._threads = limits.restart_threads
        self._reserve = limits.reserving()
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        self._suspects: set[int] = set()
        self._crashes: Counter[int] = Counter()
        self._ended: OSError | None = None

    def run(
        self, requests: Mapping[int, control_pb2.LoadRequest], ask: Ask, refused: Refused
    ) -> None:
        """Loads servables, those that share the tables of others after these.

        Args:
            requests: by number of the servable.
            ask: calls the new process.
            refused: called with each servable that cannot be loaded.

        Raises:
            OSError: the process ended.
        """
        self._ended = None
        self._under_way.clear()

        def load(number: int) -> None:
            self._load(number, requests[number], ask, refused)

        for shares in (False, True):
            numbers = [n for n, request in requests.items() if bool(request.shares) is shares]
            suspects = [number for number in numbers if number in self._suspects]
            self._side_by_side(load, [number for number in numbers if number not in suspects])
            for suspect in suspects:
                self._side_by_side(load, [suspect])

    def blame(self) -> tuple[int | None, bool]:
        """Records that the new process ended during `run`.

        Returns:
            The servable whose load was under way alone, None if it was none or several; and whether
            this happened too often.
        """
        with self._lock:
            numbers = set(self._under_way)
            self._under_way.clear()
            self._suspects |= numbers
            if len(numbers) != 1:
                return None, False
            (number,) = numbers
            self._crashes[number] += 1
            return number, self._crashes[number] >= _MOST_CRASHES

    def forget(self, number: int) -> None:
        """Removes a servable."""
        with self._lock:
            self._suspects.discard(number)
            del self._crashes[number]

    def _side_by_side(self, load: Callable[[int], None], numbers: Sequence[int]) -> None:
        if numbers:
            with ThreadPoolExecutor(min(self._threads, len(numbers)), "restart") as threads:
                list(threads.map(load, numbers))
        if self._ended is not None:
            raise self._ended

    def _load(
        self, number: int, request: control_pb2.LoadRequest, ask: Ask, refused: Refused
    ) -> None:
        try:
            with self._reserve(request):
                with self._lock:
                    if self._ended is not None:
                        return
                    self._under_way.add(number)
                ask(control_pb2.Request(load=request))
        except OSError as err:
            with self._lock:
                self._ended = err
                if isinstance(err, ConnectionRefusedError | FileNotFoundError):
                    self._under_way.discard(number)  # it had ended before
            return
        except HotrowError as err:
            refused(number, as_request_error(err))
        with self._lock:
            self._under_way.discard(number)
        self.forget(number)
