"""Loads of versions into the executable, which may end by one of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.desired_state import Loaded, Lost
from hotrow.serving.data_plane.executable import Executable, ServerEndedError
from hotrow.serving.data_plane.load_limits import Reserve


class Loads:
    """Loads servables; safe for several threads.

    Args:
        executable: loads them, and loads them again after a restart.
        reserve: surrounds each attempt.
        highest: number of a servable; the next ones are higher.
    """

    def __init__(self, executable: Executable, reserve: Reserve, highest: int) -> None:
        self._executable = executable
        self._reserve = reserve
        self._desired = executable.desired
        self._numbers = itertools.count(1 + highest)

    def load(self, request: control_pb2.LoadRequest, lost: Lost) -> int:
        """Loads a version; see `DataPlane.load`."""
        message = control_pb2.LoadRequest()
        message.CopyFrom(request)
        turns = self._executable.turns
        while True:
            message.servable = next(self._numbers)
            with turns.turn(message.model, message.version) as turn, self._room(message):
                try:
                    _, process = self._executable.call_once(control_pb2.Request(load=message))
                except ServerEndedError:
                    if turns.blames(turn):
                        raise
                    continue
            turns.clear(message.model, message.version)
            with self._desired.lock:
                # Otherwise the process ended after it answered, and a new one lacks the servable.
                if self._executable.is_still(process):
                    self._desired.servables[message.servable] = Loaded(message, lost)
                    return message.servable

    def load_once(self, request: control_pb2.LoadRequest, lost: Lost) -> int:
        """Loads a version beside others that serve; see `DataPlane.load_once`."""
        message = control_pb2.LoadRequest()
        message.CopyFrom(request)
        message.servable = next(self._numbers)
        turn = self._executable.turns.turn(message.model, message.version)
        with turn, self._room(message):
            _, process = self._executable.call_once(control_pb2.Request(load=message))
        with self._desired.lock:
            self._executable.check_is_still(process)
            self._desired.servables[message.servable] = Loaded(message, lost)
        return message.servable

    @contextlib.contextmanager
    def _room(self, request: control_pb2.LoadRequest) -> Iterator[None]:
        """Surrounds a call; its memory is looked at while the process has all that it should have.

        Take a turn first. A load that must be alone then comes before those that wait for the
        process, and finds no memory reserved.
        """
        while True:
            self._executable.wait_until_up()
            with self._reserve(request):
                if self._executable.serves() or self._executable.is_ending:
                    yield
                    return
