"""Publishes the state of training on all ranks; each makes the same calls between two steps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.config import RunConfig
from hotrow.errors import HotrowError, UnimplementedError
from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage
from hotrow.manifest import schema_hash
from hotrow.ops.ranks import Ranks
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cut_writing import CutStaging
from hotrow.store.generations import Generations
from hotrow.store.row_store import RowStore
from hotrow.trainer.checkpoint.exported import note_exported
from hotrow.trainer.checkpoint.outcome import EXPECTED, as_failure
from hotrow.trainer.checkpoint.parts import REPLICATED
from hotrow.trainer.online.publishing.base_export import export_base
from hotrow.trainer.online.publishing.counts import PublishCounts
from hotrow.trainer.online.publishing.folder import CutFolder
from hotrow.trainer.online.publishing.gate import CanaryScores, Limits
from hotrow.trainer.online.publishing.journal import Entry, Journal
from hotrow.trainer.online.publishing.part import CutPart, read_changes, stage_part
from hotrow.trainer.online.publishing.phase import ORDERING, Phase
from hotrow.trainer.online.publishing.plan import Published
from hotrow.trainer.online.publishing.store_writer import StoreWriter
from hotrow.trainer.online.publishing.view import CutView, reader_of
from hotrow.trainer.online.publishing.worker import CutWorker
from hotrow.trainer.run_directory import CHECKPOINTS

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker

Order = dict[str, Any]


class Publisher:
    """Takes cuts of a model between steps and has them published beside the training.

    Args:
        config: the run's configuration; `online.models` and `online.store` are set.
        model: the model; built.
        run_dir: the run directory.
        ranks: the ranks that train it.
        access: credentials for the store.
        lineage: returns the lineage of the training.
        restored: what the checkpoint says was published; None: it says nothing.
        score: scores the canary rows; a collective; returns None without canary.
        report: called with lines for the user.
        address: of the admin service; "": none.

    Attributes:
        worker: on rank 0; None on others.

    Raises:
        UnimplementedError: a table is split by columns.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Ranker,
        run_dir: Path,
        ranks: Ranks,
        access: StoreAccess,
        *,
        lineage: Callable[[], Lineage],
        restored: Mapping[str, Any] | None,
        score: Callable[[], CanaryScores | None],
        report: Callable[[str], None],
        address: str = "",
    ) -> None:
        self._config = config
        self._model = model
        self._ranks = ranks
        self._access = access
        self._score = score
        tables = model.tables()
        for table in tables.values():
            if table.config.sharding == "column" and ranks.size > 1:
                raise UnimplementedError(
                    f"table {table.name!r} is split by columns over ranks, and a cut has whole "
                    "rows: set its sharding to row for online training"
                )
        # Another rank publishes the rows of replicated tables.
        self._tables = {
            name: table
            for name, table in tables.items()
            if table.config.sharding != REPLICATED or ranks.is_first
        }
        self._read_dense = reader_of([v.value for v in model.dense_variables()])
        self._journal = Journal(run_dir, ranks.rank)
        self._view: CutView | None = None
        self._due_at = time.monotonic()
        self._last_step = 0
        self._taken_step = -1
        self._part: CutPart | None = None
        self._part_error = ""
        self._sent = False
        self._thread: threading.Thread | None = None
        self._stores: list[RowStore] = []
        self.worker: CutWorker | None = None
        if ranks.is_first:
            self.worker = self._make_worker(run_dir, lineage, restored, report, address)

    def _make_worker(
        self,
        run_dir: Path,
        lineage: Callable[[], Lineage],
        restored: Mapping[str, Any] | None,
        report: Callable[[str], None],
        address: str,
    ) -> CutWorker:
        config, online = self._config, self._config.online
        assert online.models is not None
        assert online.store is not None
        name = config.name if online.model is None else online.model
        writer = StoreWriter(
            Path(online.models),
            name,
            online.store,
            self._access,
            run=str(run_dir),
            address=address,
            report=report,
        )
        folder = CutFolder(
            online.store,
            self._access,
            seconds=online.fold_seconds,
            undo_cuts=config.export.undo_cuts,
            bounds=HoldBounds(online.max_hold_seconds, config.export.max_hold_bytes),
            counts=PublishCounts(),
            report=report,
        )
        layer = self._model.embedding
        features = [] if layer is None else list(layer.layout.features)
        return CutWorker(
            writer,
            folder,
            self._journal,
            schema_hash=schema_hash([t.config for t in self._tables.values()], features),
            lineage=lineage,
            dense_names=[v.value.name.partition(":")[0] for v in self._model.dense_variables()],
            restored=None if restored is None else Published.of_json(dict(restored)),
            limits=Limits(
                config.export.max_norm_ratio, online.canary_change, online.canary_auc_drop
            ),
            ranks=self._ranks.size,
            dense_seconds=online.publish_dense_seconds,
            keep_checkpoint=lambda step: note_exported(run_dir / CHECKPOINTS, step),
            export_base=lambda step, force, lender: export_base(
                run_dir,
                step,
                force,
                Path(online.models or ""),
                name,
                online.store or "",
                online.store_shards,
                self._access,
                lender,
            ),
            report=report,
        )

    def start(self) -> None:
        """Connects to the store in a thread; nothing waits for it."""
        if self.worker is not None:
            self.worker.start()

    @property
    def awaits_reports(self) -> bool:
        """Whether all ranks must exchange `report`s now; the same on all."""
        return self._view is not None and self._ranks.size > 1

    def order(self, step: int) -> Order:
        """Returns what all ranks must do now; on rank 0.

        Raises:
            HotrowError: publishing cannot go on, because another trainer publishes.
        """
        worker = self.worker
        assert worker is not None
        self._last_step = step
        # Short at most steps: all of it would cost a step of a small model 1 %.
        is_early = self._config.online.publish_rows is None and time.monotonic() < self._due_at
        if is_early and worker.phase not in ORDERING:
            return {}
        return worker.order(self._is_due(step))

    def obey(self, order: Order, step: int, newest: float) -> None:
        """Does what rank 0 ordered, on every rank.

        Args:
            order: from `order`.
            step: the present step.
            newest: time of the newest event that was trained, Unix seconds; NaN: not known.
        """
        if "begin" in order:
            self._mark(order["begin"])
        if "settled" in order and self._view is not None:
            self._settle(order["settled"])
        if "cut" in order:
            self._take(order["cut"], order["dense"], step, newest)
        elif self.worker is not None and order:
            self.worker.done(order)

    def report(self) -> dict[str, Any] | None:
        """Returns this rank's part of the cut once it is staged, for rank 0, as JSON values."""
        if self._sent or (self._part is None and not self._part_error):
            return None
        self._sent = True
        if self._part_error:
            return {"error": self._part_error}
        assert self._part is not None
        return self._part.as_json()

    def receive(self, reports: list[Any]) -> None:
        """Receives the reports of all ranks."""
        if self.worker is None:
            return
        for rank, report in enumerate(reports):
            if rank and report is not None and "error" in report:
                self.worker.fail_part(rank, report["error"])
            elif rank and report is not None:
                self.worker.add_part(rank, CutPart.of_json(report))

    def published(self) -> dict[str, Any] | None:
        """Returns what a checkpoint of this step must say; on rank 0."""
        if self.worker is None or self.worker.published is None:
            return None
        return self.worker.published.as_json()

    def have_checkpoint(self, step: int) -> None:
        """Notes that the checkpoint for a full export is on the disk."""
        if self.worker is not None:
            self.worker.have_checkpoint(step)

    def note_checkpoint(self, published: Mapping[str, Any] | None) -> None:
        """Notes that a checkpoint was written: earlier entries of the journal are not needed.

        Args:
            published: what `published` returned at its step.
        """
        if published is not None:
            self._journal.forget_before(published["version"])

    @property
    def base_checkpoint(self) -> str | None:
        """The checkpoint that the last full export shows, on rank 0; None: not known."""
        return None if self.worker is None else self.worker.base_checkpoint

    @property
    def waiting_rows(self) -> int:
        """Rows of this rank that changed and are in no cut yet; any thread may count them."""
        return sum(table.marked_rows for table in self._tables.values())

    @property
    def is_settled(self) -> bool:
        """Whether all changes so far are published, or cannot be; on rank 0."""
        worker = self.worker
        if worker is None:
            return True
        if worker.phase is Phase.READY and (worker.gate.is_closed or self._nothing_new()):
            return True
        if worker.phase is Phase.BASE and worker.gate.is_closed:
            return True
        return worker.phase is Phase.STOPPED

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to publish failed, and the next one has not begun; on rank 0."""
        return self.worker is not None and self.worker.waits_to_retry

    @property
    def unpublished(self) -> str:
        """Why the last state is not published; "": it is. On rank 0."""
        worker = self.worker
        if worker is None:
            return ""
        is_done = worker.phase in (Phase.READY, Phase.PREPARE) and self._nothing_new()
        return "" if is_done else worker.hindrance

    def hurry(self) -> None:
        """Makes the next cut due at once."""
        self._due_at = 0.0

    def close(self) -> None:
        """Ends what is under way; what was not published stays for a resumed trainer."""
        if self._thread is not None:
            self._thread.join()
        if self.worker is not None:
            self.worker.close()
        if self._view is not None:
            self._view.close(False)
            self._view = None
        for store in self._stores:
            with contextlib.suppress(HotrowError):
                store.close()

    def _nothing_new(self) -> bool:
        return self._last_step == self._taken_step and not self.waiting_rows

    def _is_due(self, step: int) -> bool:
        assert self.worker is not None
        online, now = self._config.online, time.monotonic()
        enough = online.publish_rows
        # By time alone, rows are not counted at each step.
        if now < self._due_at and (enough is None or self.waiting_rows < enough):
            return False
        waiting = self.waiting_rows
        if step == self._taken_step and not waiting:
            return False
        if self.worker.phase is not Phase.READY:
            if self.worker.phase in (Phase.STAGE, Phase.PARTS, Phase.SETTLE):
                self.worker.counts.coalesced_rows += waiting
                self._due_at = now + online.publish_seconds
            return False  # without a cut on its way, one that is due is taken as soon as it may be
        return True

    def _mark(self, begin: dict[str, Any]) -> None:
        for name, table in self._tables.items():
            table.begin_publishing(begin["since"][name])
        for name, keys in self._journal.keys_since(begin["journal_after"]).items():
            own = self._tables.get(name)
            if own is not None:
                own.mark_for_publishing(keys[own.owns(keys)])

    def _take(self, cut: dict[str, Any], with_dense: bool, step: int, newest: float) -> None:
        scores = self._score()
        self._model.push_all()
        self._due_at = time.monotonic() + self._config.online.publish_seconds
        self._taken_step = step
        dense = self._read_dense() if with_dense and self._ranks.is_first else None
        view = CutView(self._tables, dense, step)
        self._view = view
        self._part, self._part_error, self._sent = None, "", False
        entry = Entry(step=step, **cut)
        if self.worker is not None:
            self.worker.take(view, newest, scores, entry)
            return
        self._thread = threading.Thread(
            target=self._stage, args=(view, entry), name="publisher", daemon=True
        )
        self._thread.start()

    def _settle(self, published: bool) -> None:
        assert self._view is not None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._view.close(published)
        self._view = None

    def _stage(self, view: CutView, entry: Entry) -> None:
        """Stages this rank's part; not on rank 0."""
        try:
            if not self._stores:
                url = self._config.online.store or ""
                self._stores.append(open_store(url, self._access, option="online.store"))
            store = self._stores[0]
            generation = Generations(store.records).get(entry.generation)
            staging = CutStaging(
                store, generation, entry.version, lambda: None, self._ranks.rank, entry.ranks
            )
            read = read_changes(view, generation)
            self._part = stage_part(read, staging, self._journal, entry)
        except EXPECTED as err:
            self._part_error = str(as_failure(err))
        except BaseException as err:
            self._part_error = f"{type(err).__name__}: {err}"
