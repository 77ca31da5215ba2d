"""Cuts that a store has lost because it went back in time, found before an export writes.

A store is restored from an earlier second, starts with an append-only file whose tail is gone, or a
replica takes over that was behind. Docs/design/0008-cuts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.store.cuts import CutRecord, cuts_of, forget_cuts
from hotrow.store.leases import Lease
from hotrow.store.published import PublishedLog, PublishedState
from hotrow.store.readers import readers
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation
from hotrow.store.withdrawn_cuts import note_withdrawn, withdrawn_from


@dataclass(frozen=True)
class LostCut:
    """A cut of which the store's records know nothing any more.

    Attributes:
        version: of its rows.
        identity: of its record; "": unknown.
        step: of the training.
        lineage: id of the last start of training behind it; "": unknown.
        clocks: of the tables; (): unknown.
    """

    version: int
    identity: str = ""
    step: int = 0
    lineage: str = ""
    clocks: tuple[int, ...] = ()


def find_lost(store: RowStore, generation: Generation, published: PublishedLog) -> list[LostCut]:
    """Returns the cuts that the store has lost, the newest last; one of them may come twice.

    They are known from what was published from here, from the leases of servers that show them, or
    from shards that have their rows still.

    Raises:
        FailedPreconditionError: the newest one is known by its number alone, which does not say
            which changes would go on from it.
        UnavailableError: the store does not answer.
    """
    cuts = cuts_of(store.records, generation)
    withdrawn = withdrawn_from(store.records, generation)
    newest = cuts[-1].version if cuts else generation.row_version
    last = max(newest, 0 if withdrawn is None else withdrawn.version)

    def is_lost(version: int, identity: str) -> bool:
        return version > last or bool(cuts and version == newest and identity != cuts[-1].identity)

    found = [
        LostCut(s.version, s.identity, s.step, s.lineage, s.clocks)
        for s in published.states()
        if is_lost(s.version, s.identity)
    ]
    remembered = {(cut.version, cut.identity) for cut in found}
    for reader in readers(store.records, generation.generation):
        shown = reader.cut, reader.identity
        if reader.identity and is_lost(*shown) and shown not in remembered:
            found.append(LostCut(*shown, reader.step, reader.lineage))
    top = int(store.watermarks(generation).max())
    if top > last and all(cut.version != top for cut in found):
        found.append(LostCut(top))
    found.sort(key=lambda cut: (cut.version, bool(cut.lineage)))
    if found and not found[-1].lineage:
        raise FailedPreconditionError(
            f"{store.url}: the store went back in time and has lost cut {found[-1].version:016x} "
            f"of generation {generation.generation}, which servers may show; it is not known "
            "which training it shows: make a full export"
        )
    return found


def check_nothing_is_lost(store: RowStore, generation: Generation, published: PublishedLog) -> None:
    """Checks, for a rollback, that the store has all cuts that servers may show.

    Servers keep rows of lost cuts in their caches. The store does not know the keys of these rows,
    so a rollback would not replace them.

    Raises:
        FailedPreconditionError: it has lost some.
        UnavailableError: the store does not answer.
    """
    lost = find_lost(store, generation, published)
    if lost or _shards_behind(store, generation, cuts_of(store.records, generation)):
        what = f"cut {lost[-1].version:016x}" if lost else "rows of earlier exports"
        raise FailedPreconditionError(
            f"{store.url}: the store went back in time and has lost {what}, which servers may "
            "show; a rollback would leave some of it in their caches. Let the trainer publish, or "
            "export, which repairs this, then roll back"
        )


def _shards_behind(store: RowStore, generation: Generation, cuts: Sequence[CutRecord]) -> int:
    """Returns how many shards have lost rows of before the oldest cut of the records."""
    if not cuts:
        return 0
    return int((store.watermarks(generation) < cuts[0].previous).sum())


def clocks_before(clocks: tuple[int, ...], later: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the clocks since which rows differ from those of a state, or of any of later states.

    A rollback has older rows, and their clocks.

    Args:
        clocks: of the tables in the state.
        later: of the tables in later states.
    """
    return tuple(min(some) for some in zip(clocks, *later, strict=True))


def withdraw_rowless(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    published: PublishedLog,
    lineage: Lineage,
    report: Callable[[str], None],
    known: Callable[[], Set[str]] = frozenset,
) -> PublishedState | None:
    """Withdraws all cuts if a shard has lost rows of earlier ones, which no cut brings again.

    Args:
        store: the store.
        generation: of the rows.
        lock: the export lock.
        published: what was published of the generation.
        lineage: of the training.
        report: called with lines for the user.
        known: returns the identities of cuts from which the training did not go on, and whose keys
            the caller exports again.

    Returns:
        The newest state that every shard still has and from which the training went on. Its clocks
        are at most those of what was published since (a rollback has older rows): the changes since
        them are exported again, and the keys of later `known` cuts. None: no such rows are lost.

    Raises:
        DataLossError: the training did not go on from another cut that was published since that
            state: shards may have rows that it never had.
    """
    cuts = cuts_of(store.records, generation)
    behind = _shards_behind(store, generation, cuts)
    if not behind:
        return None
    base = _state_of_all(generation, published, lineage, int(store.watermarks(generation).min()))
    states = published.states()
    later = [] if base is None else [s for s in states if s.version > base.version]
    others = {s.identity for s in later if not lineage.descends_from(s.lineage, s.step)}
    if base is None or not others <= known():
        raise DataLossError(
            f"{store.url}: {behind} of {generation.shards} shards of generation "
            f"{generation.generation} went back in time and have lost rows of earlier exports, and "
            "the training did not go on from all of these: make a full export"
        )
    report(
        f"{behind} of {generation.shards} shards went back in time and have lost rows of earlier "
        f"exports: everything since step {base.step} is exported again"
    )
    note_withdrawn(store.records, generation, cuts[-1])
    lock.check()
    forget_cuts(store, generation, cuts)
    clocks = clocks_before(base.clocks, [state.clocks for state in later])
    return base.model_copy(update={"clocks": clocks})


def _state_of_all(
    generation: Generation, published: PublishedLog, lineage: Lineage, low: int
) -> PublishedState | None:
    for state in reversed(published.states()):
        if state.version <= low and lineage.descends_from(state.lineage, state.step):
            return state
    origin = generation.origin
    assert origin is not None  # checked before
    # Forgotten cuts are those of this training if nothing but one start of it has published.
    if not lineage.descends_from(origin.lineage, generation.step) or (
        not published.is_whole and lineage.id != origin.lineage
    ):
        return None
    return PublishedState(
        version=0, identity="", step=generation.step, clocks=origin.clocks, lineage=origin.lineage
    )
