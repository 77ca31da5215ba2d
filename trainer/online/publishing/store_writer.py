"""The only writer of a model's rows in a store, for as long as a trainer publishes.

Docs/design/0008-cuts.md and 0012-online.md. Only rank 0 has one; other ranks stage their rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    FencedError,
    HotrowError,
    NotFoundError,
)
from hotrow.lineage import Lineage
from hotrow.manifest import Manifest
from hotrow.norms import Norm
from hotrow.ops.export import find_version
from hotrow.ops.export.gates import norms_shown
from hotrow.ops.export.live_version import point_to_existing
from hotrow.rollback import exported_dense
from hotrow.store.access import StoreAccess
from hotrow.store.cut_rollback import roll_back_to_cut
from hotrow.store.cut_writing import CutBegun, CutStaging, StagedPart, begin_cut, commit_cut
from hotrow.store.cuts import CutRecord, cuts_of, discard_unfinished
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import forget_broken
from hotrow.store.leases import ExportLock, exporter_of, lock_exports
from hotrow.store.lost_cuts import LostCut, clocks_before, find_lost, withdraw_rowless
from hotrow.store.published import PublishedLog, PublishedState
from hotrow.store.row_store import RowStore
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation, State
from hotrow.trainer.online.publishing.online_store import open_online_store

_MOST_GROWTH = 4
"""How many times the rows for which it is laid out a table may have."""


@dataclass(frozen=True)
class Shown:
    """What the servers of a generation show, or will show.

    Attributes:
        version: of the rows.
        identity: of the cut; "": the rows as exported.
        clocks: clocks of the tables in it, in the order of the generation; or earlier ones, if
            servers may show a later cut that has rows from before it.
        lineage: id of the start of training behind it.
        step: training step.
    """

    version: int
    identity: str
    clocks: tuple[int, ...]
    lineage: str
    step: int


class StoreWriter:
    """Holds the export lock of a model and writes its cuts; one thread at a time.

    Args:
        models: folder of all models.
        model: name of the model.
        url: URL of the store.
        access: credentials.
        run: the trainer's run, for others that find the lock held.
        address: of its admin service, likewise; "": none.
        report: called with lines for the user.
    """

    def __init__(
        self,
        models: Path,
        model: str,
        url: str,
        access: StoreAccess,
        *,
        run: str = "",
        address: str = "",
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._models = models
        self._model = model
        self._url = url
        self._access = access
        self._run = run
        self._address = address
        self._report = report
        self._store: RowStore | None = None
        self._lock: ExportLock | None = None
        self._awaits_export = False  # that of an earlier process of this run
        self._generation: Generation | None = None
        self._published: PublishedLog | None = None
        self._last: CutRecord | None = None  # the cut from which the next one goes on
        self._base: PublishedState | None = None  # in its place: all later cuts are withdrawn
        self.directory = Path()
        self.manifest: Manifest | None = None

    @property
    def store(self) -> RowStore:
        """The open store."""
        assert self._store is not None  # after `open`
        return self._store

    @property
    def generation(self) -> Generation:
        """The generation whose servers get the cuts."""
        assert self._generation is not None  # after `find`
        return self._generation

    @property
    def lock(self) -> ExportLock:
        """The export lock."""
        assert self._lock is not None  # after `open`
        return self._lock

    @property
    def last_identity(self) -> str:
        """Identity of the cut from which the next one goes on; "": the rows as exported."""
        last = self._last or self._base
        return "" if last is None else last.identity

    @property
    def has_dense(self) -> bool:
        """Whether the next cut may have the dense weights of the last one."""
        return self._last is not None

    def open(self) -> bool:
        """Connects, and takes the export lock, unless this is done.

        Returns:
            Whether it has the lock; False: a full export of this run has it, whose trainer ended,
            or had it until now.

        Raises:
            FencedError: another process holds the lock.
            UnavailableError, PermissionDeniedError: the store does not answer, or refuses.
        """
        if self._store is None:
            self._store = open_online_store(self._url, self._access)
        if self._lock is not None and self._lock.lost.is_set():
            self._lock.release()
            self._lock = None
        if self._lock is None:
            self._lock = self._take_lock(self._store)
        if self._lock is not None:
            self._awaits_export = False
        return self._lock is not None

    def _take_lock(self, store: RowStore) -> ExportLock | None:
        try:
            return lock_exports(store.records, self._model, trainer=self._run, admin=self._address)
        except FailedPreconditionError as err:
            found = exporter_of(store.records, self._model)
            if found is None:
                return None
            if found.lender and found.trainer == self._run:
                if not self._awaits_export:
                    self._report(f"a full export of {self._run} is on its way, and comes first")
                self._awaits_export = True
                return None
            raise FencedError(
                f"another process publishes model {self._model!r} in {store.url}: {err}"
            ) from err

    def find(
        self, schema_hash: str, lineage: Lineage, known: Callable[[], Set[str]]
    ) -> Shown | None:
        """Finds the newest version, and what its servers show; None: a base export is needed.

        Brings the store into a state from which cuts can go on, as an incremental export does.

        Args:
            schema_hash: of the model's tables and features.
            lineage: of the training.
            known: returns the identities of cuts whose keys the journal has.

        Raises:
            FencedError: the lock was lost.
            HotrowError: the store does not answer.
        """
        self.lock.confirm()
        self._generation = self.manifest = None
        self._last, self._base = None, None
        try:
            directory, manifest = find_version(self._models, self._model, None)
            generation = Generations(self.store.records).get(manifest.generation)
        except (NotFoundError, FailedPreconditionError):
            return None
        usable = (
            manifest.schema_hash == schema_hash == generation.schema_hash
            and generation.state is State.COMPLETE
            and generation.origin is not None
            and generation.origin.top is None
            and not self.store.missing_markers(generation)
        )
        if not usable:
            return None
        self.directory, self.manifest, self._generation = directory, manifest, generation
        self._published = PublishedLog.beside(directory, manifest.generation)
        return self._recover(generation, lineage, known)

    def _recover(
        self, generation: Generation, lineage: Lineage, known: Callable[[], Set[str]]
    ) -> Shown | None:
        store, published = self.store, self._published
        assert published is not None
        assert generation.origin is not None
        store.check_safe_for_rows()
        try:
            lost = find_lost(store, generation, published)
            discard_unfinished(store, generation)
            base = withdraw_rowless(
                store, generation, self.lock, published, lineage, self._report, known
            )
        except (DataLossError, FailedPreconditionError) as err:
            self.lock.check()
            self._report(f"{err}")
            return None
        forget_broken(store, generation, self.lock, self._report)
        point_to_existing(Generations(store.records), self._model, self.directory.parent)
        cuts = cuts_of(store.records, generation)
        if lost:
            self._report(f"the store went back in time and has lost step {lost[-1].step}")
        shown = self.exported()
        if base is not None:
            self._base = base
            shown = _shown(base)
        elif cuts:
            self._last = cuts[-1]
            shown = _shown(cuts[-1])
        return self._with_later(shown, lost, lineage, known)

    def _with_later(
        self, shown: Shown, lost: Sequence[LostCut], lineage: Lineage, known: Callable[[], Set[str]]
    ) -> Shown | None:
        """Returns a state, with the earliest clocks of it and of lost ones that servers may show.

        Returns:
            None: the training did not go on from one of these, and the journal does not have it.
        """
        assert self._published is not None
        states = [state for state in self._published.states() if state.version > shown.version]
        later: list[PublishedState | LostCut] = [*states, *lost]
        others = [one for one in later if not lineage.descends_from(one.lineage, one.step)]
        try:
            names = known() if others else set()
        except DataLossError as err:
            self._report(f"{err}")
            return None
        unknown = [one for one in others if one.identity not in names]
        if unknown:
            self._report(
                f"the store has lost cut {unknown[-1].version:016x}, which servers may show; this "
                "training did not go on from it and does not know its rows"
            )
            return None
        clocks = clocks_before(shown.clocks, [one.clocks for one in later if one.clocks])
        return replace(shown, clocks=clocks)

    def exported(self) -> Shown:
        """Returns the rows as exported; they may be older than what servers show."""
        generation = self.generation
        origin = generation.origin
        assert origin is not None  # see `find`
        return Shown(generation.row_version, "", origin.clocks, origin.lineage, generation.step)

    def published_states(self) -> list[PublishedState]:
        """Returns what was published of the generation, the oldest first."""
        assert self._published is not None  # after `find`
        return self._published.states()

    def norms(self) -> tuple[Norm, ...]:
        """Returns the norms of what servers show."""
        assert self.manifest is not None
        assert self._published is not None
        cuts = cuts_of(self.store.records, self.generation)
        return norms_shown(self.manifest, cuts, self._published.states())

    def begin(self) -> CutBegun:
        """Takes the version of the next cut; see `begin_cut`."""
        self.lock.confirm()
        assert self._published is not None
        above = max((state.version for state in self._published.states()), default=0)
        return begin_cut(self.store, self.generation, above)

    def staging(self, version: int, parts: int) -> CutStaging:
        """Returns where rank 0 stages its part of a cut."""
        return CutStaging(self.store, self.generation, version, self.lock.check, 0, parts)

    def commit(
        self, begun: CutBegun, parts: Sequence[StagedPart], same_dense: bool, **facts: Any
    ) -> CutRecord:
        """Commits a cut; see `commit_cut`.

        Args:
            begun: its version.
            parts: what is staged of it.
            same_dense: whether it has the dense weights of the last cut.
            facts: other arguments of `commit_cut`.
        """
        self.lock.check()
        previous = None if self._base is None else self._base.version
        if self._last is None and previous is None:
            previous = 0
        cut = commit_cut(
            self.store,
            self.generation,
            begun,
            parts,
            previous=previous,
            after=self._last,
            same_dense=self._last if same_dense else None,
            **facts,
        )
        self._last, self._base = cut, None
        assert self._published is not None
        self._published.append(cut)
        return cut

    def abandon(self) -> None:
        """Deletes what is staged and not committed, as far as the store answers."""
        with contextlib.suppress(HotrowError):
            self.lock.check()
            discard_unfinished(self.store, self.generation)

    def outgrown(self, sizes: Mapping[str, int]) -> list[str]:
        """Returns the tables for which the store has far too few pages.

        Args:
            sizes: rows of the tables, by name.
        """
        generation, found = self.generation, []
        for table in generation.tables:
            size = RECORD_HEAD_BYTES + table.row_bytes
            pages = self.store.pages_of(size, sizes.get(table.name, 0), generation.shards)
            if pages > _MOST_GROWTH * table.pages:
                found.append(table.name)
        return found

    def roll_back(self, to: int) -> CutRecord:
        """Publishes the state `to` as a new cut, whether or not servers take it; see there."""
        self.lock.confirm()
        assert self._published is not None
        outcome = roll_back_to_cut(
            self.store,
            self.generation,
            self.lock,
            to,
            published=self._published,
            exported_dense=lambda: exported_dense(self.directory),
            wait_seconds=0.0,
            report=self._report,
        )
        assert outcome.cut is not None  # it was committed
        self._published.append(outcome.cut)
        self._last, self._base = outcome.cut, None
        return outcome.cut

    def close(self) -> None:
        """Releases the lock and closes the store."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._store is not None:
            self._store.close()
            self._store = None


def _shown(state: CutRecord | PublishedState) -> Shown:
    return Shown(state.version, state.identity, state.clocks, state.lineage, state.step)
