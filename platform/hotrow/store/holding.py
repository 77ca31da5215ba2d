"""Readers that hold up folding, and the bounds after which it goes on without them.

A cut is folded once no reader answers by an earlier one. A reader that takes no cuts
(`hotrow.bind`), or a server that hangs, would hold it up for ever: staged cuts fill the store, and
each server keeps their rows in its memory (docs/design/0008-cuts.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotrow.hold_bounds import HoldBounds
from hotrow.store.cuts import CutRecord
from hotrow.store.readers import Reader, overrule, readers
from hotrow.store.row_store import Records
from hotrow.store.spec import Generation


@dataclass(frozen=True)
class Hold:
    """A reader that holds up folding.

    Attributes:
        reader: the reader.
        since_ms: since when, by the store's clock: the commit of the oldest staged cut that it does
            not answer by, or the start of its lease if that is later.
        seconds: for how long.
        cuts: how many staged cuts it holds up.
        bytes: of these. For a reader that takes cuts, without the newest one, which it may be
            taking.
    """

    reader: Reader
    since_ms: int
    seconds: float
    cuts: int
    bytes: int

    def exceeds(self, bounds: HoldBounds) -> bool:
        """Returns whether it lasts for too long, or costs too many bytes."""
        if bounds.seconds is not None and self.seconds >= bounds.seconds:
            return True
        return bounds.bytes is not None and self.bytes > bounds.bytes

    def __str__(self) -> str:
        """Returns what it is in words."""
        kind = "a server" if self.reader.follows_cuts else "hotrow.bind"
        return (
            f"{self.reader.holder} ({kind}) holds up {self.cuts} incremental exports for "
            f"{self.seconds:.0f} s, {self.bytes} bytes"
        )


def holds(
    records: Records, generation: Generation, cuts: Sequence[CutRecord], about: int = 0
) -> list[Hold]:
    """Returns the readers that hold up folding, in the order of their names.

    Args:
        records: records of the store.
        generation: the generation.
        cuts: its cuts, the oldest first.
        about: version of a cut that must be folded again.
    """
    staged = [cut for cut in cuts if not cut.folded or cut.version == about]
    found = []
    now = records.now_ms()
    for reader in readers(records, generation.generation):
        held = [cut for cut in staged if cut.version > reader.cut]
        if not held or is_overruled(reader):
            continue
        since = max(held[0].committed_ms, reader.since_ms)
        sizes = [cut.bytes for cut in held if cut is not cuts[-1] or not reader.follows_cuts]
        seconds = max(0, now - since) / 1000 if since else 0.0
        found.append(Hold(reader, since, seconds, len(held), sum(sizes)))
    return found


def is_overruled(reader: Reader) -> bool:
    """Returns whether rows that a reader needs were replaced already.

    A server ends that by taking a newer cut; a reader that takes no cuts must begin again.
    """
    return reader.overruled > (reader.cut if reader.follows_cuts else 0)


class Readers:
    """Whether readers of a generation let its cuts be folded.

    Args:
        records: records of the store.
        generation: the generation.
        cuts: its cuts, the oldest first.
        bounds: for readers that hold up folding.
        report: called with a line for each reader that is overruled.
    """

    def __init__(
        self,
        records: Records,
        generation: Generation,
        cuts: Sequence[CutRecord],
        bounds: HoldBounds,
        report: Callable[[str], None],
    ) -> None:
        self._records = records
        self._generation = generation
        self._cuts = cuts
        self._bounds = bounds
        self._report = report
        self.overruled: list[Hold] = []

    def is_needed_before(self, version: int) -> bool:
        """Returns whether a reader that is not overruled answers by a cut before this one.

        It reads the leases again each time: folding takes long, and servers start meanwhile.
        """
        return self.oldest_needed() < version

    def oldest_needed(self) -> float:
        """Returns the oldest version that a reader answers by which is not overruled."""
        there = readers(self._records, self._generation.generation)
        return min((reader.cut for reader in there if not is_overruled(reader)), default=math.inf)

    def let_fold(self, version: int) -> bool:
        """Returns whether a cut may be folded; overrules readers that hold it up for too long.

        The lease of such a reader says so before a row changes.
        """
        name = self._generation.generation
        found = holds(self._records, self._generation, self._cuts, version)
        holding = [hold for hold in found if hold.reader.cut < version]
        if not all(hold.exceeds(self._bounds) for hold in holding):
            return False
        for hold in holding:
            if overrule(self._records, name, hold.reader, version):
                self._report(f"{hold}: overruled, it must begin again")
                self.overruled.append(hold)
        return not self.is_needed_before(version)
