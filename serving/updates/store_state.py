"""Whether a version's store still has what the version shows (docs/design/0008-cuts.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotrow.protos import control_pb2
from hotrow.store.cuts import CutRecord, cuts_of, folded_to
from hotrow.store.generations import Generations, ModelRecord
from hotrow.store.withdrawn_cuts import withdrawn_from

if TYPE_CHECKING:
    from hotrow.store.bound_rows import BoundRows

# Between two reads of the watermarks: a store that went back is noticed within a second.
_MARKS_SECONDS = 0.5


@dataclass(frozen=True)
class StoreState:
    """What a store has of a version, read together.

    Attributes:
        record: of the model.
        cuts: of the generation, the oldest first.
        low: the lowest watermark of a shard, read after the cuts.
        went_back: whether the model's record or a watermark is earlier than before, or not the one
            that was there.
    """

    record: ModelRecord
    cuts: tuple[CutRecord, ...]
    low: int
    went_back: bool


class StoreReading:
    """Reads the state of a version's store again and again, and as little as possible."""

    def __init__(self) -> None:
        self._record: ModelRecord | None = None
        self._low = 0
        self._marks_due = 0.0

    def read(self, bound: BoundRows, due: bool) -> StoreState | None:
        """Returns the state of the store; None: nothing has changed since the last call.

        Args:
            bound: the version's rows.
            due: read it anyway.

        Raises:
            HotrowError: the store does not answer, or a record is damaged.
        """
        records, generation = bound.store.records, bound.generation
        record = Generations(records).model(generation.model)
        went_back = self._record is not None and _is_earlier(record, self._record)
        changed = due or record != self._record
        if not changed and time.monotonic() >= self._marks_due:
            changed = self._lowest(bound) < self._low
        if not changed:
            return None
        cuts = tuple(cuts_of(records, generation))
        low = self._lowest(bound)
        went_back = went_back or low < self._low
        self._record, self._low = record, low
        return StoreState(record, cuts, low, went_back)

    def _lowest(self, bound: BoundRows) -> int:
        low = int(bound.store.watermarks(bound.generation).min())
        self._marks_due = time.monotonic() + _MARKS_SECONDS
        return low


def _is_earlier(record: ModelRecord, before: ModelRecord) -> bool:
    now, then = (record.epoch, record.seq), (before.epoch, before.seq)
    return now < then or (now == then and record.token != before.token)


def lost_by(bound: BoundRows, state: StoreState, shown: control_pb2.ShownCut) -> str:
    """Returns what a store has lost of the state that a version shows; "": nothing.

    Raises:
        HotrowError: the store does not answer.
    """
    generation = bound.generation
    if not _has(state.cuts, shown, generation.row_version):
        withdrawn = withdrawn_from(bound.store.records, generation)
        if withdrawn is None or withdrawn.version < shown.version:
            return f"cut {shown.version:016x}"
    needed = max(generation.row_version, folded_to(state.cuts))
    if state.low >= needed:
        return ""
    return "exported rows" if needed == generation.row_version else f"rows of cut {needed:016x}"


def _has(cuts: Sequence[CutRecord], shown: control_pb2.ShownCut, exported: int) -> bool:
    """Returns whether a store has the shown cut, or a later one that takes its place."""
    newest = cuts[-1].version if cuts else exported
    if newest != shown.version:
        return newest > shown.version
    return not cuts or not shown.identity or cuts[-1].identity == shown.identity
