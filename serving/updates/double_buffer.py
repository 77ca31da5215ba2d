"""The two servables of a version: one answers, the other one takes the next cut."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.data_plane import DataPlane


class DoubleBuffer:
    """Servables of one version, of which the second is loaded with the first cut.

    Args:
        data_plane: has them.
        numbers: of those that are there, the one with the tables first.
        routed: the one of them that answers.
        load_second: loads the other one, beside the first, with what it is to show, unless it is
            there; returns its number.
        publish: makes requests go to `routed` from now on.

    Attributes:
        routed: number of the servable that answers.
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
        self._load_second = load_second
        self._publish = publish

    def shown(self) -> list[control_pb2.ShownCut]:
        """Returns what each of them shows."""
        return [self._shown(number) for number in self._numbers]

    def show(self, cut: control_pb2.ShownCut, *, forget_cached: bool = False) -> None:
        """Makes all answers those of a cut; whoever asks sees the one before or this one, whole.

        Returns when the last request that began before has ended. What fails may be tried again.

        Args:
            cut: what to show.
            forget_cached: whether rows in memory may be older than those of the store.

        Raises:
            RequestError: one of them does not take it; requests are answered as before, or by it.
        """
        if not _same_state(self._shown(self.routed), cut):
            self._route_to(self._idle_with(cut, forget_cached))
        for number in self._numbers:
            if self._shown(number) != cut:
                self._data_plane.show(number, cut, forget_cached)

    def set_stale(self, stale: bool) -> None:
        """Says whether the rows that they know may be old."""
        for number in list(self._numbers):
            self._data_plane.set_stale(number, stale)

    def close(self) -> None:
        """Frees them, the one whose tables the other uses last; no route may lead to them."""
        with contextlib.ExitStack() as stack:  # the last one first, each whatever others raise
            for number in self._numbers:
                stack.callback(self._data_plane.unload, number)

    def _shown(self, number: int) -> control_pb2.ShownCut:
        return self._data_plane.kept(number).shown

    def _idle_with(self, cut: control_pb2.ShownCut, forget_cached: bool) -> int:
        if len(self._numbers) == 1:
            self._numbers.append(self._load_second(self._numbers[0], cut))
        (idle,) = (number for number in self._numbers if number != self.routed)
        # Also one that has just been loaded with it: the cache is that of the other one.
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


def _same_state(one: control_pb2.ShownCut, other: control_pb2.ShownCut) -> bool:
    """Returns whether a servable may go from one to the other while it answers."""
    return bool(one.version == other.version and one.dense == other.dense)
