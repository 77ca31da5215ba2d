"""Which cuts a version should show, by the records of its store and what it shows already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotrow.store.cuts import laid_cuts

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
        fence: version of the newest cut that is in the store's rows and in no layer, or of the
            exported rows: shards with a lower watermark have earlier rows.
    """

    version: int
    step: int
    newest: CutRecord | None
    layers: tuple[CutRecord, ...]
    missed: bool = False
    fence: int = 0


def wanted_cuts(
    generation: Generation, cuts: Sequence[CutRecord], shown: int | None, low: int | None = None
) -> WantedCuts:
    """Returns what a version should show.

    Args:
        generation: of its rows.
        cuts: that are committed and not forgotten, the oldest first.
        shown: version of the rows that it shows; None: none yet, and no rows were read.
        low: the lowest watermark of a shard, read after the cuts: what was folded after it is gone
            from that shard. None: folded cuts are in the store.
    """
    exported = generation.row_version
    if not cuts:
        return WantedCuts(exported, generation.step, None, (), fence=exported)
    # A cut that is not shown yet may be folding right now. If it has been folded, the cache may
    # still hold older rows.
    new = [cut for cut in cuts if shown is not None and cut.version > shown]
    before = 0 if shown is None else shown
    missed = False
    for cut in new:
        missed = missed or cut.previous > before
        before = cut.version

    def is_laid(cut: CutRecord) -> bool:
        return cut in new or not cut.folded or (low is not None and cut.version > low)

    return _with_layers(generation, cuts[-1], laid_cuts(cuts, is_laid), missed)


def remembered_cuts(
    generation: Generation, shown: CutRecord, known: Sequence[CutRecord], low: int
) -> WantedCuts | None:
    """Returns how to go on showing a cut that its store has lost: its rows and earlier ones laid.

    Args:
        generation: of the rows.
        shown: the cut.
        known: cuts whose rows are at hand.
        low: the lowest watermark of a shard.

    Returns:
        None if the rows of a cut that the store has lost are not at hand.
    """
    at_hand = {cut.version: cut for cut in known}
    layers: list[CutRecord] = []
    version = shown.version
    while version > max(low, generation.row_version):
        if version not in at_hand:
            return None
        layers.append(at_hand[version])
        version = layers[-1].previous
    return _with_layers(generation, shown, tuple(layers), missed=False)


def _with_layers(
    generation: Generation, newest: CutRecord, layers: tuple[CutRecord, ...], missed: bool
) -> WantedCuts:
    fence = newest.version
    if layers:
        fence = layers[-1].previous or generation.row_version
    return WantedCuts(newest.version, newest.step, newest, layers, missed, fence)
