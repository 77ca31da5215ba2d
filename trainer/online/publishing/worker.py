"""The thread of rank 0 that prepares, stages and commits cuts, and has them folded."""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hotrow.errors import (
    DataLossError,
    FencedError,
    HotrowError,
    NotFoundError,
)
from hotrow.lineage import Lineage
from hotrow.norms import GateError, Norm
from hotrow.ops.export.dense_checkpoint import DenseForm
from hotrow.store.cut_writing import CutBegun
from hotrow.store.cuts import CutRecord
from hotrow.trainer.checkpoint.outcome import EXPECTED, as_failure
from hotrow.trainer.online.publishing.folder import CutFolder
from hotrow.trainer.online.publishing.gate import CanaryScores, Gate, GoodScores, Limits
from hotrow.trainer.online.publishing.journal import Entry, Journal
from hotrow.trainer.online.publishing.part import CutPart, read_changes, stage_part
from hotrow.trainer.online.publishing.phase import Phase
from hotrow.trainer.online.publishing.plan import (
    Begin,
    Published,
    begin_again,
    begin_anew,
    published_before,
)
from hotrow.trainer.online.publishing.store_writer import Shown, StoreWriter
from hotrow.trainer.online.publishing.taken_cut import TakenCut
from hotrow.trainer.online.publishing.tasks import Tasks
from hotrow.trainer.online.publishing.view import CutView

_LOOK_SECONDS = 0.05
"""Between two looks for something to do."""
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.2, 2.0
_LONGEST_EXPORT_RETRY_SECONDS = 5.0
"""A full export is a process, which loads its libraries each time."""
_EXPORT_LOOK_SECONDS = 0.2
"""Between two looks whether that of an earlier process of this run has ended."""


class CutWorker:
    """Writes cuts in a thread; the training thread asks for orders and reports what it did.

    Args:
        writer: of the store; closed at the end.
        folder: folds its cuts; closed at the end.
        journal: of rank 0.
        schema_hash: of the model's tables and features.
        lineage: returns the lineage of the training.
        dense_names: names of the dense variables, for messages.
        restored: of the checkpoint that training was resumed from.
        limits: of the gates.
        ranks: how many ranks there are.
        dense_seconds: time between two cuts with dense weights; None: each has them.
        keep_checkpoint: keeps the checkpoint of a step from being pruned.
        export_base: makes a full export of it, whatever gates say if its second argument says so,
            by the export lock that the third one lends; raises NotFoundError if it is gone,
            GateError if a gate refuses it.
        report: called with lines for the user.

    Attributes:
        gate: of cuts.
        counts: of cuts.
        failure: why publishing, and training, must end.
        tasks: of operators.
        published: on which marks of rows are based; None: nothing yet.
        base_checkpoint: the checkpoint that the last full export shows; None: not known.
        committed: called with each cut after its commit, and the canary's scores.
    """

    def __init__(
        self,
        writer: StoreWriter,
        folder: CutFolder,
        journal: Journal,
        *,
        schema_hash: str,
        lineage: Callable[[], Lineage],
        dense_names: Sequence[str],
        restored: Published | None,
        limits: Limits,
        ranks: int,
        dense_seconds: float | None,
        keep_checkpoint: Callable[[int], None],
        export_base: Callable[[int, bool, str], None],
        report: Callable[[str], None],
    ) -> None:
        self._writer = writer
        self._folder = folder
        self._journal = journal
        self._schema_hash = schema_hash
        self._lineage = lineage
        self._dense_names = dense_names
        self._restored = restored
        self._limits = limits
        self._ranks = ranks
        self._dense_seconds = dense_seconds
        self._dense_at = -math.inf  # when a cut with dense weights was taken
        self._keep_checkpoint = keep_checkpoint
        self._export_base = export_base
        self._report = report
        self.gate = Gate()
        self.counts = folder.counts
        self.failure: HotrowError | None = None
        self.published: Published | None = None
        self.base_checkpoint: str | None = None
        self.committed: Callable[[CutRecord, CanaryScores | None], None] = lambda cut, scores: None
        self._phase = Phase.FIND
        self._changed = threading.Condition()
        self._closed = False
        self._retry_at = 0.0
        self._begin: Begin | None = None
        self._begun: CutBegun | None = None
        self._taken: TakenCut | None = None
        self._settled = False  # whether the cut to settle was published
        self._step = 0  # of the base export
        self._in_doubt: set[str] = set()
        self._dense_form: DenseForm | None = None
        self._norms: dict[str, Norm] = {}
        self._good = GoodScores()
        self._outgrown = False  # whether a table has too many rows for its place in the store
        self.tasks = Tasks(self._changed, lambda: self.hindrance)
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    # --- the training thread ---

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def phase(self) -> Phase:
        """What the worker does, or waits for."""
        return self._phase

    @property
    def hindrance(self) -> str:
        """Why the newest state is not published yet."""
        if self.failure is not None:
            return str(self.failure)
        if self.gate.is_closed:
            return f"publishing is stopped: {self.gate.reason}"
        return self.counts.error or "a full export, or a cut, is on its way"

    @property
    def waits_to_retry(self) -> bool:
        """Whether the last attempt failed, and the next one has not begun."""
        phase = self._phase
        return phase in (Phase.FIND, Phase.EXPORT) and time.monotonic() < self._retry_at

    def order(self, due: bool) -> dict[str, Any]:
        """Returns what all ranks must do now, as JSON values; {}: nothing.

        Args:
            due: whether a cut is due.

        Raises:
            HotrowError: publishing cannot go on; see `failure`.
        """
        with self._changed:
            if self.failure is not None:
                raise self.failure
            if self._phase is Phase.BEGIN:
                assert self._begin is not None
                return {"begin": self._begin.as_json()}
            if self._phase is Phase.BASE:
                return {} if self.gate.is_closed else {"base": True}
            if self._phase is Phase.SETTLE:
                return {"settled": self._settled}
            if self._phase is Phase.READY and due and not self.gate.is_closed:
                assert self._begun is not None
                assert self.published is not None
                writer = self._writer
                return {
                    "dense": self._is_dense_due(),
                    "cut": {
                        "version": self._begun.version,
                        "identity": self._begun.identity,
                        "previous": writer.last_identity,
                        "generation": writer.generation.generation,
                        "ranks": self._ranks,
                    },
                }
            return {}

    def _is_dense_due(self) -> bool:
        if self._dense_seconds is None or not self._writer.has_dense:
            return True
        return time.monotonic() - self._dense_at >= self._dense_seconds

    def done(self, order: dict[str, Any]) -> None:
        """Notes that all ranks have done an order, besides a cut.

        Args:
            order: from `order`.
        """
        with self._changed:
            if "begin" in order:
                assert self._begin is not None
                self.published = self._begin.published
                self._phase = Phase.PREPARE
            elif "base" in order:
                self._phase = Phase.CHECKPOINT
            elif "settled" in order:
                self._taken = None
                if not self._settled:
                    self._phase = Phase.FIND
                else:
                    self._phase = Phase.BASE if self._outgrown else Phase.PREPARE
            self._changed.notify_all()

    def take(self, view: CutView, newest: float, scores: CanaryScores | None, entry: Entry) -> None:
        """Hands over the cut that was ordered."""
        with self._changed:
            assert self._begun is not None
            self._taken = TakenCut(self._begun, view, entry, newest, time.monotonic(), scores)
            self._phase = Phase.STAGE
            self._changed.notify_all()

    def add_part(self, rank: int, part: CutPart) -> None:
        """Hands over the part of another rank."""
        with self._changed:
            if self._taken is not None:
                self._taken.parts[rank] = part
                self._changed.notify_all()

    def fail_part(self, rank: int, problem: str) -> None:
        """Notes that another rank could not stage its part."""
        with self._changed:
            if self._taken is not None and self._phase in (Phase.STAGE, Phase.PARTS):
                self._taken.failed = f"rank {rank}: {problem}"
                self._changed.notify_all()

    def have_checkpoint(self, step: int) -> None:
        """Notes that the checkpoint for a full export is on the disk."""
        with self._changed:
            if self._phase is Phase.CHECKPOINT:
                self._keep_checkpoint(step)  # before the next one prunes it
                self._step, self._phase = step, Phase.EXPORT
                self._changed.notify_all()

    def roll_back(self, to: int) -> CutRecord:
        """Publishes an earlier state as a new cut and closes the gate; returns the cut.

        Args:
            to: version of a cut that the store keeps, or of the rows as exported.

        Raises:
            HotrowError: see `roll_back_to_cut`.
        """
        done: list[CutRecord] = []

        def go_back() -> None:
            self._folder.hold()
            try:
                done.append(self._writer.roll_back(to))
                self._folder.keep_one_more()  # drops no state that is kept before it
            finally:
                self._folder.follow(self._writer.generation, self._writer.lock)
            self.gate.close(f"rolled back to {to:016x} by an operator")
            with self._changed:
                # Rows are marked anew: servers do not have what was published since.
                self.published, self._restored = None, None
                self._phase = Phase.FIND

        self.tasks.run(go_back)
        return done[0]

    def close(self) -> None:
        """Ends the thread, after what it is doing, and closes the store."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._folder.close()  # what servers have not taken is left to the next start
        with contextlib.suppress(HotrowError):
            self._writer.close()

    # --- the worker's thread ---

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._has_work():
                    self._changed.wait(_LOOK_SECONDS)
                if self._closed:
                    return
                phase = self._phase
                task = self.tasks.pop() if self.tasks and self._is_between() else None
            try:
                if task is not None:
                    task()
                else:
                    self._work(phase)
            except FencedError as err:
                self._stop(err)
            except GateError as err:
                self._refuse(str(err))
            except EXPECTED as err:
                self._fail(as_failure(err))
            except BaseException as err:  # a defect: training must not go on as if all were well
                failure = HotrowError(f"publishing failed: {type(err).__name__}: {err}")
                failure.__cause__ = err
                self._stop(failure)

    def _is_between(self) -> bool:
        return self._phase in (Phase.READY, Phase.PREPARE, Phase.BEGIN)

    def _has_work(self) -> bool:
        if self._closed or (self.tasks and self._is_between()):
            return True
        if self._phase in (Phase.FIND, Phase.EXPORT):
            return not self.waits_to_retry
        if self._phase is Phase.PARTS:
            return self._taken is not None and self._taken.is_staged
        if self._phase is Phase.READY:
            return self._folder.failure is not None
        return self._phase in (Phase.PREPARE, Phase.STAGE)

    def _work(self, phase: Phase) -> None:
        if self.waits_to_retry:
            return
        if phase in (Phase.READY, Phase.PREPARE) and self._folder.failure is not None:
            raise self._folder.failure
        if phase is Phase.FIND:
            self._folder.hold()
            self._find()
        elif phase is Phase.EXPORT:
            self._folder.hold()
            self._make_base()
        elif phase is Phase.PREPARE:
            begun = self._writer.begin()
            with self._changed:
                self._begun, self._phase = begun, Phase.READY
        elif phase is Phase.STAGE:
            self._stage()
        elif phase is Phase.PARTS and self._taken is not None and self._taken.is_staged:
            self._commit()

    def _find(self) -> None:
        writer = self._writer
        while not writer.open():
            if self._closed:
                return
            time.sleep(_EXPORT_LOOK_SECONDS)
        lineage = self._lineage()
        shown = writer.find(
            self._schema_hash, lineage, lambda: {e.identity for e in self._journal.entries()}
        )
        if shown is None:
            self._report("servers have nothing to go on from: a full export comes first")
            self._to(Phase.BASE)
            return
        begin = self._plan(shown, lineage)
        self._dense_form = DenseForm(writer.directory)
        self._norms = {norm.name: norm for norm in writer.norms()}
        self._outgrown = False
        self._folder.follow(writer.generation, writer.lock)
        assert writer.manifest is not None
        self.base_checkpoint = writer.manifest.checkpoint or None
        if begin is None:
            self._report("servers do not show a state of this training: a full export comes first")
            self._to(Phase.BASE)
        elif begin is True:
            self._to(Phase.PREPARE)
        else:
            assert isinstance(begin, Begin)
            self._begin = begin
            self._to(Phase.BEGIN)

    def _plan(self, shown: Shown, lineage: Lineage) -> Begin | bool | None:
        """Returns how publishing goes on from what servers show, see `begin_again`."""
        writer, entries = self._writer, self._journal.entries
        name = writer.generation.generation
        tables = [table.name for table in writer.generation.tables]
        exported, states = writer.exported(), writer.published_states()
        before = published_before(exported, states, name, tables, lineage, self._restored)
        try:
            if self.published is None:
                return begin_anew(shown, name, tables, lineage, before, entries)
            last, in_doubt = self.published, self._in_doubt
            return begin_again(shown, name, tables, lineage, last, in_doubt, before, entries)
        except DataLossError as err:
            self._report(str(err))
            return None

    def _make_base(self) -> None:
        if self._writer.lock.lost.is_set():
            self._to(Phase.FIND)  # perhaps another trainer has published since
            return
        try:
            with self._writer.lock.lend() as lender:
                self._export_base(self._step, self.gate.force, lender)
        except (NotFoundError, GateError):
            self._to(Phase.BASE)  # of another checkpoint
            raise
        self.gate.force = False
        self.counts.base_exports += 1
        self.published = None
        self._restored = None
        self._to(Phase.FIND)
        self._journal.clear()

    def _stage(self) -> None:
        taken = self._taken
        assert taken is not None
        read = read_changes(taken.view, self._writer.generation)
        assert self._dense_form is not None
        taken.pack_dense(self._dense_form, self._dense_names)
        if taken.view.has_dense:
            self._dense_at = taken.at
        staging = self._writer.staging(taken.begun.version, self._ranks)
        part = stage_part(read, staging, self._journal, taken.entry, taken.dense)
        with self._changed:
            taken.parts[0] = part
            self._phase = Phase.PARTS

    def _commit(self) -> None:
        taken = self._taken
        assert taken is not None
        force = self.gate.force
        parts = [taken.parts[rank] for rank in sorted(taken.parts)]
        if taken.failed:
            raise HotrowError(taken.failed)
        norms = taken.checked_norms(self._norms, self._limits.norm_ratio, force)
        if taken.scores is not None and not force:
            self._good.check(taken.scores, self._limits)
        generation = self._writer.generation
        clocks = [taken.view.clocks[table.name] for table in generation.tables]
        self._in_doubt.add(taken.begun.identity)
        cut = self._writer.commit(
            taken.begun,
            [part.staged for part in parts],
            step=taken.view.step,
            clocks=clocks,
            lineage=self._lineage().id,
            dense_sha256=hashlib.sha256(taken.dense).hexdigest(),
            same_dense=not taken.view.has_dense,
            norms=tuple(norms.values()),
            forced=force,
            event_ms=taken.event_ms,
        )
        self._norms = norms
        self._outgrown = self._is_outgrown(parts)
        self._note_committed(taken, cut)

    def _is_outgrown(self, parts: Sequence[CutPart]) -> bool:
        """Returns whether a table needs a new place in the store, and reports that."""
        sizes: Counter[str] = Counter()
        for part in parts:
            sizes.update(part.sizes)
        found = self._writer.outgrown(sizes)
        for name in found:
            self._report(
                f"table {name} has {sizes[name]} rows, many more than the store was laid out for: "
                "a full export follows"
            )
        return bool(found)

    def _note_committed(self, taken: TakenCut, cut: CutRecord) -> None:
        seconds = time.monotonic() - taken.at
        self.counts.add(cut, seconds, taken.newest)
        self._in_doubt.clear()
        self.gate.force = False
        if taken.scores is not None:
            self._good.add(taken.scores)
        generation = self._writer.generation.generation
        published = Published(generation, cut.version, cut.identity, dict(taken.view.clocks))
        with self._changed:
            self.published = published
            self._settled, self._phase = True, Phase.SETTLE
        self.committed(cut, taken.scores)

    def _to(self, phase: Phase) -> None:
        with self._changed:
            self._phase = phase

    def _refuse(self, reason: str) -> None:
        self.gate.close(reason)
        self.gate.force = False
        self._report(f"publishing stopped: {reason}; `platform resume` goes on")
        if self._taken is not None:
            self._writer.abandon()
        self._give_up()

    def _fail(self, error: HotrowError) -> None:
        counts, text = self.counts, str(error)
        if text != counts.error:
            self._report(f"publishing failed: {text}; trying again")
        counts.add_failure(text)
        is_export = self._phase is Phase.EXPORT
        longest = _LONGEST_EXPORT_RETRY_SECONDS if is_export else _LONGEST_RETRY_SECONDS
        pause = min(_RETRY_SECONDS * 2 ** min(counts.failures - 1, 10), longest)
        self._retry_at = time.monotonic() + pause
        if self._taken is not None:
            self._writer.abandon()
        self._give_up()

    def _give_up(self) -> None:
        """Leaves the changes of the present cut to the next one."""
        with self._changed:
            if self._taken is not None:
                self._settled, self._phase = False, Phase.SETTLE
            elif self._phase is not Phase.BASE:
                self._phase = Phase.EXPORT if self._phase is Phase.EXPORT else Phase.FIND

    def _stop(self, failure: HotrowError) -> None:
        with self._changed:
            self.failure, self._phase = failure, Phase.STOPPED
