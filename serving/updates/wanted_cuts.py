"""Which cuts a version should show, by the records of its store and what it shows already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.store.cuts import CutRecord
    from hotrow.store.spec import Generation


@dataclass(frozen=True)
class WantedCuts:
    """What a version should show.

    Attributes:
        version: of the rows: of the newest cut, or of the rows as exported.
        step: of the training.
        newest: cut, whose weights are shown; None: those as exported.
        layers: cuts whose rows lie over those of the store, the newest first.
        missed: whether cuts that are gone by now were never shown: rows that were read from the
            store before may be older than the store's, and no layer shows which.
    """

    version: int
    step: int
    newest: CutRecord | None
    layers: tuple[CutRecord, ...]
    missed: bool = False


def wanted_cuts(generation: Generation, cuts: Sequence[CutRecord], shown: int | None) -> WantedCuts:
    """Returns what a version should show.

    Args:
        generation: of its rows.
        cuts: that are committed and not forgotten, the oldest first.
        shown: version of the rows that it shows; None: none yet, and none were read.
    """
    if not cuts:
        return WantedCuts(generation.row_version, generation.step, None, ())
    # Nobody knows whether a cut that is not shown yet is being folded at this moment; and when it
    # was folded, rows of before may be in memory.
    new = [cut for cut in cuts if shown is not None and cut.version > shown]
    before = 0 if shown is None else shown
    missed = False
    for cut in new:
        missed = missed or cut.previous > before
        before = cut.version
    layers = tuple(cut for cut in reversed(cuts) if cut in new or not cut.folded)
    return WantedCuts(cuts[-1].version, cuts[-1].step, cuts[-1], layers, missed)
