"""Trains on events as they come, and publishes, until the source ends or a signal comes."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, replace

from hotrow.config import RunConfig
from hotrow.errors import HotrowError, UnavailableError
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import CutRecord
from hotrow.trainer.agreement import agreed, gathered
from hotrow.trainer.batch_feed import Batch
from hotrow.trainer.checkpoint.outcome import Outcome
from hotrow.trainer.checkpoint.position import Online
from hotrow.trainer.checkpoint.position import Position as Checkpointed
from hotrow.trainer.models.split import Split
from hotrow.trainer.online.admin.port import TrainerAdmin, read_admin_access
from hotrow.trainer.online.canary import Canary
from hotrow.trainer.online.canary_servers import CanaryServers, ServerScores
from hotrow.trainer.online.feed import Encode, OnlineFeed, Orders, Tick
from hotrow.trainer.online.frozen import FROZEN_EVERY, FrozenModel
from hotrow.trainer.online.progressive import EXACT_EVENTS, ProgressiveMetrics
from hotrow.trainer.online.publishing.gate import CanaryScores
from hotrow.trainer.online.publishing.publisher import Publisher
from hotrow.trainer.online.publishing.worker import CutWorker
from hotrow.trainer.online.source import EventStream, Position
from hotrow.trainer.online.stream import event_encoder, open_stream
from hotrow.trainer.online.trainer_control import TrainerControl
from hotrow.trainer.run_directory import RunDirectory
from hotrow.trainer.source_run import SourceRun
from hotrow.trainer.step_report import StepReport
from hotrow.trainer.stop_request import StopRequest
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.train_step import make_forward
from hotrow.trainer.training_run import TrainingRun

DEAD_LETTERS = "dead_letters.jsonl"
"""The file of bad events in a run directory."""
_PAUSE_SECONDS = 0.1
_TICKS_OF_AN_ATTEMPT = 100
"""Between two attempts to write the checkpoint of a full export; a tick may take a step."""
_LAST_CUT_SECONDS = 30.0
"""How long the last cut may take after a signal, and in a store that fails."""
_SAY_SECONDS = 5.0
"""After which a line says what the end of a run waits for."""


class OnlineRun(TrainingRun):
    """A run over a stream of events (docs/design/0012-online.md).

    Args:
        config: the run's configuration.
        directory: the run directory.
        split: the split of the tables over ranks.
        source: the run that it starts from; None: none.
        access: credentials of the store and the source.
        server_scores: asks a server for its scores of the canary rows.
    """

    # Its stream has no end, and an exact AUC of a million rows takes 0.2 s of a step.
    exact_rows = EXACT_EVENTS

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        split: Split,
        source: SourceRun | None = None,
        access: StoreAccess = StoreAccess(),  # noqa: B008 (frozen)
        server_scores: ServerScores | None = None,
    ) -> None:
        super().__init__(config, directory, split, source)
        self._access = access
        self._server_scores = server_scores
        self._online: Online = {}
        self._is_resumed = False
        self._newest = float("nan")
        self._metrics = ProgressiveMetrics(config.online.window_seconds)
        self._open = contextlib.ExitStack()
        self._stream: EventStream | None = None
        self._publisher: Publisher | None = None
        self._control: TrainerControl | None = None
        self._frozen: FrozenModel | None = None
        self._split = split
        self._checkpointed_at = time.monotonic()
        self._busy_seconds = 0.0
        self._base_ticks = 0
        self._base_step: int | None = None  # a full export waits for a checkpoint of it, or later

    def train(self, resume: bool) -> TrainResult:
        """Trains until the end and returns the result."""
        self.start(resume)
        self._is_resumed = resume
        self._online = dict(self.position.online or {})
        with self._open:
            self._begin()
            self.log.start_steps(self.position.step, None)
            self.reporting.start_epoch(self.position)
            with StopRequest() as stop:
                self._run(stop)
            self.has_begun = True
            if self._control is not None:
                number = self.stopping
                reason = "the source has ended" if number is None else f"signal {number}"
                self._control.note_ended(reason)
            self.reporting.training(self.position)
            self.position = self._here()
            self.last_checkpoint()
            stop = StopRequest()
            # After a signal, a second one ends the process.
            with stop if self.stopping is None else contextlib.nullcontext():
                self._finish_publishing(stop)
        if self.stopping is not None:
            self.leave(self.stopping)
        return self.reporting.result(self.position, self.first_step)

    def _begin(self) -> None:
        config, online = self.config, self.config.online
        encode: Encode = event_encoder(config)
        agreed(self.ranks, "source of events", self._open_stream)
        self._feed = OnlineFeed(self._stream, encode, self.ranks)
        self._open.callback(self._feed.close)
        address = agreed(self.ranks, "admin service", self._open_admin)
        canary = Canary(config, make_forward(self.model, config), self.ranks)
        if online.models is not None:
            self._publisher = Publisher(
                config,
                self.model,
                self.directory.path,
                self.ranks,
                self._access,
                lineage=lambda: self.checkpoints.lineage,
                restored=self._online.get("published"),
                score=canary.score,
                report=self.log.say,
                address=address,
            )
            self._open.callback(self._publisher.close)
            worker = self._publisher.worker
            if worker is not None and self._control is not None:
                publisher = self._publisher
                self._control.publishes_by(worker, lambda: publisher.waiting_rows)
                self._watch_canary(worker, self._control)
            self._publisher.start()

    def _open_stream(self) -> None:
        if not self.ranks.is_first:
            return
        path = self.directory.path
        position: Position = self._online.get("source", {})
        # A new run whose source is not there has a wrong URL, perhaps.
        self._stream = open_stream(
            self.config,
            path / DEAD_LETTERS,
            position,
            self.log.say,
            may_be_away=self._is_resumed,
        )
        self._open.callback(self._stream.close)
        self._control = TrainerControl(
            self.config, str(path), self.checkpoints.lineage.id, self.ranks.size, self._stream
        )
        self._open.callback(self._control.close)

    def _open_admin(self) -> str:
        """Opens the admin port on rank 0; returns its address, "" without one."""
        access = read_admin_access(self.config.online)
        if access is None or self._control is None:
            return ""
        admin = TrainerAdmin(access, self._control, self.directory.path)
        self._open.enter_context(admin)
        self.log.say(f"the admin service answers at {admin.address}")
        return admin.address

    def _run(self, stop: StopRequest) -> None:
        while not self.at_end():
            tick = self._feed.next(self._orders)
            if tick is None:
                return
            began = time.perf_counter()
            self._newest = tick.newest
            if tick.batch is not None:
                self._score_frozen(tick.batch)
                self._online = {**self._online, "source": tick.position}
                self._online["events"] = self._online.get("events", 0) + tick.batch.rows
                self.train_batch(tick.batch, self._feed, stop, self._online)
            self._publish(tick)
            if tick.batch is None:
                self._between_batches(stop)
            self._busy_seconds += time.perf_counter() - began
            if tick.orders.get("pause"):
                self._stand_still(stop)
            self._note_state()
            if self.stopping is not None:
                return

    def _orders(self) -> Orders:
        """Returns what all ranks must do after this tick; on rank 0."""
        publisher, control = self._publisher, self._control
        orders: Orders = {}
        if publisher is not None:
            orders |= publisher.order(self.position.step)
            published, known = publisher.published(), self._online.get("published")
            # None: not known yet, as after a resume; what the checkpoint said stays true.
            if published is not None and published is not known and published != known:
                orders["published"] = published
            frozen = publisher.base_checkpoint
            scored = None if self._frozen is None else self._frozen.checkpoint
            if self.config.online.frozen and frozen is not None and frozen != scored:
                orders["frozen"] = frozen
        if control is not None and control.wants_pause:
            orders["pause"] = True
        return orders

    def _stand_still(self, stop: StopRequest) -> None:
        """Returns when an operator resumes training, or a signal comes."""
        self.log.say("paused by an operator; `platform resume` goes on")
        if self._control is not None:
            self._control.note_paused(True)
        while True:
            goes_on = self._control is None or not self._control.wants_pause
            if self.ranks.size > 1:
                reports = gathered(self.ranks, "pause", [stop.number, goes_on])
                self.stopping = next((n for n, _ in reports if n is not None), None)
                goes_on = reports[0][1]
            else:
                self.stopping = stop.number
            if goes_on or self.stopping is not None:
                break
            self._receive_checkpoints()
            time.sleep(_PAUSE_SECONDS)
        if self._control is not None:
            self._control.note_paused(False)
        self.reporting.start_step()

    def _score_frozen(self, batch: Batch) -> None:
        if self._frozen is not None and self.position.step % FROZEN_EVERY == 0:
            self._frozen.score(batch, self._newest)

    def _note_state(self) -> None:
        control = self._control
        if control is None:
            return
        progress = {"online": self._metrics}
        if self._frozen is not None:
            progress["frozen"] = self._frozen.metrics
        events = self._online.get("events", 0)
        control.note_step(self.position.step, events, self._newest, progress, self._busy_seconds)

    def _publish(self, tick: Tick) -> None:
        """Does what rank 0 ordered, after the step."""
        publisher = self._publisher
        if publisher is None:
            return
        if not (tick.orders or publisher.awaits_reports or self._base_step is not None):
            return
        if publisher.awaits_reports:
            publisher.receive(gathered(self.ranks, "cut", publisher.report()))
        publisher.obey(tick.orders, self.position.step, self._newest)
        if "frozen" in tick.orders:
            self._load_frozen(tick.orders["frozen"])
        if "published" in tick.orders:
            # A new object: a checkpoint that is being written has the one before.
            self._online = {**self._online, "published": tick.orders["published"]}
        if "base" in tick.orders:
            self._base_step, self._base_ticks = self.position.step, 0
        self._see_to_base(publisher)

    def _see_to_base(self, publisher: Publisher) -> None:
        """Has a checkpoint written for a full export, if one is wanted."""
        if self._base_step is None:
            return
        saved = self.checkpoints.saved
        if saved is not None and saved >= self._base_step:
            self._base_step = None
            publisher.have_checkpoint(saved)
        elif not self.checkpoints.is_writing:
            # By ticks, which are the same on all ranks: a full disk refuses each attempt.
            if self._base_ticks % _TICKS_OF_AN_ATTEMPT == 0:
                self._take_checkpoint()
            self._base_ticks += 1

    def _load_frozen(self, checkpoint: str) -> None:
        online = self.config.online
        try:
            self._frozen = FrozenModel(
                self.config, self._split, checkpoint, online.window_seconds, self.log.say
            )
        except HotrowError as err:
            self.log.say(f"the last full export is not scored for comparison: {err}")
            self._frozen = FrozenModel.missing(checkpoint, online.window_seconds)

    def _between_batches(self, stop: StopRequest) -> None:
        """Sees to checkpoints and signals while no events come."""
        self._receive_checkpoints()
        seconds = self.config.checkpoint.every_seconds
        now = time.monotonic()
        due = seconds is not None and now - self._checkpointed_at >= seconds
        if self.ranks.size > 1:
            numbers = gathered(self.ranks, "stop requests", [stop.number, due])
            self.stopping = next((n for n, _ in numbers if n is not None), None)
            due = numbers[0][1]
        else:
            self.stopping = stop.number
        if due and self.stopping is None:
            self._take_checkpoint()

    def _receive_checkpoints(self) -> None:
        if self.ranks.size > 1:
            reports = gathered(self.ranks, "checkpoint", self.checkpoints.report())
            self.checkpoints.receive(reports)
        self.note_outcomes(self.checkpoints.outcomes())

    def _take_checkpoint(self) -> None:
        self._checkpointed_at = time.monotonic()
        self.position = self._here()
        self.model.push_all()
        self.checkpoints.begin(self.position, self.reporting.state)

    def _here(self) -> Checkpointed:
        return replace(self.position, online=self._online)

    def note_step(self, done: StepReport) -> None:
        """Adds a step to the progressive metrics."""
        ended = self._metrics.add(done.labels, done.logits, done.weights, self._newest)
        if ended is not None:
            self.log.append("progressive", self.position, asdict(ended))
            frozen = None if self._frozen is None else self._frozen.metrics.progress().window
            if frozen is not None:
                self.log.append("frozen", self.position, asdict(frozen))

    def note_outcomes(self, outcomes: list[Outcome]) -> None:
        """Moves consumer groups to what checkpoints have."""
        super().note_outcomes(outcomes)
        if self._control is not None:
            self._control.note_checkpoints(outcomes)
        for outcome in outcomes:
            if outcome.failure is not None:
                continue
            online = outcome.position.online or {}
            if self._publisher is not None:
                self._publisher.note_checkpoint(online.get("published"))
            if self._stream is not None and "source" in online:
                self._stream.note_saved(online["source"])

    def _watch_canary(self, worker: CutWorker, control: TrainerControl) -> None:
        online = self.config.online
        if not online.canary_servers or self._server_scores is None:
            worker.committed = lambda cut, scores: control.note_scores(scores)
            return
        servers = CanaryServers(
            online.canary_servers,
            self._server_scores,
            online.canary_tolerance,
            worker.gate,
            control,
        )
        self._open.callback(servers.close)

        def committed(cut: CutRecord, scores: CanaryScores | None) -> None:
            control.note_scores(scores)
            servers.add(scores)

        worker.committed = committed

    def _finish_publishing(self, stop: StopRequest) -> None:
        """Publishes the last state.

        After a signal that may take 30 s. When the source has ended, it may take as long as a full
        export does, but it ends if the store still fails after 30 s, or if a signal comes.

        Args:
            stop: a signal that came since the source has ended.

        Raises:
            UnavailableError: the source has ended, and the last state could not be published.
        """
        publisher = self._publisher
        if publisher is None:
            return
        publisher.hurry()
        began, has_said = time.monotonic(), False
        while True:
            lasts = time.monotonic() - began
            is_late = lasts >= _LAST_CUT_SECONDS
            may_end = self.stopping is not None or publisher.is_failing
            over = publisher.is_settled or stop.number is not None or (is_late and may_end)
            orders = {} if over or not self.ranks.is_first else self._orders()
            left, number = publisher.unpublished, stop.number
            if self.ranks.size > 1:
                report = [over, orders, left, number]
                over, orders, left, number = gathered(self.ranks, "last cut", report)[0]
            if over:
                break
            if lasts >= _SAY_SECONDS and not has_said:
                self.log.say(f"step {self.position.step} is not published yet: {left}")
                has_said = True
            self._publish(Tick(None, self._newest, {}, orders))
            self._receive_checkpoints()
            time.sleep(0.01)
        if self.stopping is None:
            self.stopping = number
        if not left:
            return
        line = f"step {self.position.step} is not published: {left}; --resume publishes it"
        if self.stopping is None:
            raise UnavailableError(line)
        self.log.say(line)
