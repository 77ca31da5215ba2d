"""`MergedSource`: the events of all partitions in one order.

The order is that of a merge: of the next events of all partitions, the one with the smallest event
time comes first, and of equal ones that of the first partition by name. A partition without further
events is left out until it has some. So events that are there already have one order, however many
are read at once; of events that arrive meanwhile, the order depends on when they do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.errors import DataLossError
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import join_events
from hotrow.trainer.online.partitions import Chunk, Offset, Partitions
from hotrow.trainer.online.source import Events, Lag, Position

AGAIN_SECONDS = 30.0
"""How long events that were read once may take to be there when they are read again."""


class _Buffer:
    """The events of a partition that were read and not taken."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.taken = 0

    @property
    def left(self) -> int:
        return len(self.chunk.behind) - self.taken

    def head(self, most: int) -> Events:
        """Returns the next events."""
        part = slice(self.taken, self.taken + min(most, self.left))
        events = self.chunk.events
        return Events(events.rows.slice(part.start, part.stop - part.start), events.times[part])

    def take(self, count: int) -> Offset:
        """Removes the next `count` events, at least 1; returns the offset behind them."""
        self.taken += count
        return self.chunk.behind[self.taken - 1] if self.left else self.chunk.end


class MergedSource:
    """A `Source` of partitions. One thread reads."""

    def __init__(self, partitions: Partitions, dead_letters: DeadLetters, name: str) -> None:
        """Binds partitions.

        Args:
            partitions: where events come from.
            dead_letters: where their bad events go.
            name: what they are, for messages.
        """
        self._dead_letters = dead_letters
        self._reads_again = False
        self._partitions = partitions
        self._name = name
        self._offsets: dict[str, Offset] = {}
        self._buffers: dict[str, _Buffer] = {}
        self._starts: dict[str, Offset] = {}
        self._ended = self._is_away = False

    def read(
        self, position: Position, most: int, wait_seconds: float
    ) -> tuple[Events, Position] | None:
        """See `Source`."""
        self._go_to(position, again=False)
        taken: list[Events] = []
        idle: set[str] = set()
        while most > 0:
            self._fill(idle, 0.0 if taken else wait_seconds)
            if not self._buffers:
                break
            most -= self._merge(most, taken)
        if not taken and self._ended:
            return None
        return self._joined(taken), dict(self._offsets)

    def read_again(self, position: Position, counts: Mapping[str, int]) -> tuple[Events, Position]:
        """See `Source`."""
        self._go_to(position, again=True)
        taken: list[Events] = []
        left = {key: count for key, count in counts.items() if count}
        end = time.monotonic() + AGAIN_SECONDS
        while left:
            with self._dead_letters.muted():
                self._fill(set(), 0.1, left)
            if all(key in self._buffers for key in left):
                self._merge(sum(left.values()), taken, left)
                left = {key: count for key, count in left.items() if count}
            elif self._is_away:
                end = time.monotonic() + AGAIN_SECONDS
            elif self._ended or time.monotonic() > end:
                missing = next(key for key in left if key not in self._buffers)
                raise DataLossError(
                    f"{self._name}: {left[missing]:,} events of {missing} were read before and are "
                    "not there now; bring them back, or begin a new run"
                )
        return self._joined(taken), dict(self._offsets)

    def lag(self, position: Position) -> Lag:
        """See `Source`. Any thread may call it."""
        return self._partitions.lag(position)

    def note_saved(self, position: Position) -> None:
        """See `Source`. Any thread may call it."""
        self._partitions.note_saved(position)

    def close(self) -> None:
        """See `Source`."""
        self._partitions.close()

    def _go_to(self, position: Position, again: bool) -> None:
        """Forgets what was read ahead, unless the reader goes on where it stopped."""
        # What was read ahead with the dead letters muted is read once more.
        if position != self._offsets or again != self._reads_again:
            self._offsets = dict(position)
            self._buffers = {}
            self._reads_again = again

    def _fill(
        self, idle: set[str], wait_seconds: float, wanted: Mapping[str, int] | None = None
    ) -> None:
        """Reads ahead in partitions without events.

        Args:
            idle: partitions that had none before, in this read; those that have none are added.
            wait_seconds: how long to wait for the first event.
            wanted: only these partitions; None: all.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            busy = self._buffers.keys() | idle
            wait = 0.0 if self._buffers else max(0.0, deadline - time.monotonic())
            polled = self._partitions.poll(self._offsets, busy, wait)
            self._ended, self._is_away = polled.ended, polled.away
            for key in polled.gone:
                self._offsets.pop(key, None)
            for key, chunk in polled.chunks.items():
                if key not in self._offsets and chunk.start is not None:
                    self._starts[key] = chunk.start
                if len(chunk.behind):
                    self._buffers[key] = _Buffer(chunk)
                else:
                    self._offsets[key] = chunk.end
            # A partition whose events were all bad may have more.
            if not any(not len(chunk.behind) for chunk in polled.chunks.values()):
                break
        if wanted is None:
            idle |= self._offsets.keys() - self._buffers.keys()

    def _merge(self, most: int, taken: list[Events], left: dict[str, int] | None = None) -> int:
        """Takes events until a partition has none left; returns how many.

        Args:
            most: at most this many.
            taken: to append the events to.
            left: only these partitions, and only so many of each; counted down. None: all.
        """
        keys = sorted(self._buffers if left is None else left)
        heads = [self._buffers[key].head(most if left is None else left[key]) for key in keys]
        # In its partition an event stays behind those before it, however old it is.
        times = [np.maximum.accumulate(head.times) for head in heads]
        owners = np.repeat(np.arange(len(keys)), [len(head.times) for head in heads])
        order = np.argsort(np.concatenate(times), kind="stable")
        order = order[: min(most, _first_end(owners[order], len(keys)))]
        counts = np.bincount(owners[order], minlength=len(keys)).tolist()
        events = heads[0] if len(keys) == 1 else join_events(heads)
        if len(keys) == 1:
            chosen = events.rows.slice(0, len(order))
        else:
            chosen = events.rows.take(pa.array(order))
        for key, count in zip(keys, counts, strict=True):
            if not count:
                continue
            buffer = self._buffers[key]
            self._offsets[key] = buffer.take(count)
            if not buffer.left:
                del self._buffers[key]
            if left is not None:
                left[key] -= count
        by_key = {key: count for key, count in zip(keys, counts, strict=True) if count}
        taken.append(Events(chosen, events.times[order], by_key))
        return len(order)

    def _joined(self, taken: list[Events]) -> Events:
        if not taken:
            return self._partitions.no_events()
        counts: dict[str, int] = {}
        for events in taken:
            for key, count in events.counts.items():
                counts[key] = counts.get(key, 0) + count
        joined = join_events(taken)
        starts = {key: self._starts.pop(key) for key in counts if key in self._starts}
        return Events(joined.rows, joined.times, counts, starts)


def _first_end(owners: npt.NDArray[np.int64], partitions: int) -> int:
    """Returns after how many events the first partition has none left.

    Args:
        owners: int64 [N], the partition of each event.
        partitions: their number; each has an event.
    """
    last = np.zeros(partitions, dtype=np.int64)
    last[owners] = np.arange(len(owners))  # the last of equal indices stays
    return int(last.min()) + 1
