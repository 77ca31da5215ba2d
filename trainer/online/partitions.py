"""`Partitions`: what a source implements; each partition is read from an offset of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

from hotrow.trainer.online.source import Events, Lag

Offset = Any
"""How far a partition was read, as a JSON value."""


class Offsets(Sequence[Offset]):
    """Offsets that are made of numbers when they are needed: few of them are."""

    def __init__(self, numbers: Sequence[int], offset: Callable[[int], Offset]) -> None:
        """Binds N numbers and what makes an offset of one."""
        self._numbers = numbers
        self._offset = offset

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Offset: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Offset]: ...
    def __getitem__(self, index: int | slice) -> Offset | Sequence[Offset]:
        """Returns one offset, or several."""
        if isinstance(index, slice):
            return Offsets(self._numbers[index], self._offset)
        return self._offset(self._numbers[index])


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive events of a partition.

    Attributes:
        events: N events, without bad ones.
        behind: N offsets, where the partition goes on behind each.
        end: where it goes on behind the chunk, whose last events may be bad.
        start: where the partition begins, if this is its beginning; None: a reader that knows
            nothing of it begins there, too.
    """

    events: Events
    behind: Sequence[Offset]
    end: Offset
    start: Offset | None = None


@dataclass(frozen=True)
class Polled:
    """What partitions have.

    Attributes:
        chunks: by partition.
        gone: partitions that were read to their end and exist no more.
        ended: nothing will ever follow.
        away: the source does not answer.
    """

    chunks: Mapping[str, Chunk] = field(default_factory=dict)
    gone: Collection[str] = ()
    ended: bool = False
    away: bool = False


class Partitions(Protocol):
    """Partitions of events."""

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """Returns the next events of partitions.

        Args:
            offsets: how far each was read; those that are missing are read from their beginning.
            busy: partitions of which nothing is needed now.
            wait_seconds: how long to wait if none of the others has an event.

        Raises:
            DataLossError: events that were not read exist no more.
            UnavailableError: the source does not answer.
        """

    def no_events(self) -> Events:
        """Returns no events, with their columns."""

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """Returns how far a reader is behind. Any thread may call it.

        Raises:
            UnavailableError: the source does not answer.
        """

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """Notes that a checkpoint has these offsets. Any thread may call it."""

    def close(self) -> None:
        """Closes connections and files."""
