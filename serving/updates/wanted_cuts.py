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
        version: of the rows: the newest cut's, or that of the exported rows.
        step: of the training.
        newest: the newest cut, whose dense weights are shown; None: the exported ones.
        layers: cuts whose rows overlay those of the store, the newest first.
        missed: whether cuts were removed before they were shown: cached rows may then be older than
            the store's, and no layer shows which.
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
        shown: version of the rows that it shows; None: none yet, and no rows were read.
    """
    if not cuts:
        return WantedCuts(generation.row_version, generation.step, None, ())
    # A cut that is not shown yet may be folding right now. If it has been folded, the cache may
    # still hold older rows.
    new = [cut for cut in cuts if shown is not None and cut.version > shown]
    before = 0 if shown is None else shown
    missed = False
    for cut in new:
        missed = missed or cut.previous > before
        before = cut.version
    layers = tuple(cut for cut in reversed(cuts) if cut in new or not cut.folded)
    return WantedCuts(cuts[-1].version, cuts[-1].step, cuts[-1], layers, missed)
