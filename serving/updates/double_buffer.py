"""The two servables of a version: one answers, the other takes the next cut."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.data_plane import DataPlane


class DoubleBuffer:
    """The servables of one version; the second is loaded with the first cut.

    Args:
        data_plane: has them.
        numbers: of the loaded servables, the one with the tables first.
        routed: number of the servable that answers.
        load_second: returns the number of the other servable; loads it beside the first, with the
            cut to show, unless it is loaded already.
        publish: routes requests to `routed` from now on.

    Attributes:
        routed: number of the servable that answers.
        routed_at: when it was routed to, of `time.monotonic`.
    """

    def __init__(
        self,
        data_plane: DataPlane,
        numbers: list[int],
        routed: int,
        load_second: Callable[[int, control_pb2.ShownCut], int],
        publish: Callable[[], None],
    ) -> None:
        self._data_plane = data_plane
        self._numbers = numbers
        self.routed = routed
        self.routed_at = time.monotonic()
        self._load_second = load_second
        self._publish = publish

    def shown(self) -> list[control_pb2.ShownCut]:
        """Returns the state that each servable shows."""
        return [self._shown(number) for number in self._numbers]

    def show(self, cut: control_pb2.ShownCut, *, forget_cached: bool = False) -> None:
        """Makes all answers show a cut; each request sees the previous state or this one, whole.

        Returns when the last request that began before has ended. A failed call may be repeated.

        Args:
            cut: the state to show.
            forget_cached: whether rows in memory may be older than those of the store.

        Raises:
            RequestError: a servable does not take it; the previous state or this one answers.
        """
        if not _same_state(self._shown(self.routed), cut):
            self._route_to(self._idle_with(cut, forget_cached))
        for number in self._numbers:
            if self._shown(number) != cut:
                self._data_plane.show(number, cut, forget_cached)

    def check_rows(self) -> None:
        """Makes the servables check the watermarks of all shards that they read again."""
        for number in list(self._numbers):
            self._data_plane.show(number, self._shown(number), False)

    def set_stale(self, stale: bool) -> None:
        """Sets whether the servables' rows may be old."""
        for number in list(self._numbers):
            self._data_plane.set_stale(number, stale)

    def close(self) -> None:
        """Frees both, the one with the tables last; no route may lead to them."""
        with contextlib.ExitStack() as stack:  # in reverse order; an error stops none
            for number in self._numbers:
                stack.callback(self._data_plane.unload, number)

    def _shown(self, number: int) -> control_pb2.ShownCut:
        return self._data_plane.kept(number).shown

    def _idle_with(self, cut: control_pb2.ShownCut, forget_cached: bool) -> int:
        if len(self._numbers) == 1:
            self._numbers.append(self._load_second(self._numbers[0], cut))
        (idle,) = (number for number in self._numbers if number != self.routed)
        # Also needed after a load with this cut: the servables share one cache.
        if forget_cached or self._shown(idle) != cut:
            self._data_plane.show(idle, cut, forget_cached)
        return idle

    def _route_to(self, number: int) -> None:
        before, self.routed = self.routed, number
        try:
            self._publish()
        except BaseException:
            self.routed = before
            raise
        self.routed_at = time.monotonic()


def _same_state(one: control_pb2.ShownCut, other: control_pb2.ShownCut) -> bool:
    """Returns whether a servable may change from one state to the other while it answers."""
    return bool(
        one.version == other.version and one.identity == other.identity and one.dense == other.dense
    )
