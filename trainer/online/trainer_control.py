"""The control of a running trainer: what operators see and ask for, on rank 0."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from hotrow.config import RunConfig
from hotrow.errors import DeadlineExceededError, FailedPreconditionError, HotrowError
from hotrow.protos import online_pb2
from hotrow.store.url import parse_store_url
from hotrow.trainer.checkpoint.outcome import Outcome
from hotrow.trainer.metrics import Quality
from hotrow.trainer.online.progressive import Progress, ProgressiveMetrics
from hotrow.trainer.online.publishing.gate import CanaryScores
from hotrow.trainer.online.publishing.worker import CutWorker
from hotrow.trainer.online.source import EventStream, Lag
from hotrow.trainer.online.sources.url import parse_source_url
from hotrow.version import __version__

_State = online_pb2.TrainerStatus.State
_RATE_SECONDS = 10.0
_LAG_SECONDS = 1.0
_EFFECT_SECONDS = 60.0
"""How long a call waits for the step or the cut that is under way."""


class TrainerControl:
    """See `hotrow.trainer.online.admin.control.Control`. The loop calls `note_*` between steps.

    Args:
        config: the run's configuration.
        run_dir: text of the run directory.
        run_id: id of this start of training.
        ranks: number of ranks.
        stream: of events.
    """

    def __init__(
        self, config: RunConfig, run_dir: str, run_id: str, ranks: int, stream: EventStream
    ) -> None:
        self._config = config
        self._run_dir = run_dir
        self._run_id = run_id
        self._ranks = ranks
        self._stream = stream
        self._source = parse_source_url(config.online.source or "").shown
        self._worker: CutWorker | None = None
        self._changed = threading.Condition()
        self._pause_reason: str | None = None
        self._is_paused = False
        self._state_since = time.time()
        self._ended = ""
        self._step = 0
        self._events = 0
        self._newest = math.nan
        self._waiting_rows: Callable[[], int] = lambda: 0
        self._progress: dict[str, ProgressiveMetrics] = {}
        self._rates: deque[tuple[float, int, float]] = deque([(time.monotonic(), 0, 0.0)])
        self._lag = Lag()
        self._trouble = ""
        self._written = 0
        self._failures = 0
        self._checkpoint: tuple[int, float] | None = None
        self._checkpoint_error = ""
        self._server_difference: float | None = None
        self._server_trouble = ""
        self._last_scores: CanaryScores | None = None
        self._score_change: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch_lag, name="lag", daemon=True)
        self._thread.start()

    # --- the training thread ---

    def publishes_by(self, worker: CutWorker, waiting_rows: Callable[[], int]) -> None:
        """Sets the worker that publishes.

        Args:
            worker: of rank 0.
            waiting_rows: counts its rows that are in no cut yet; called by any thread.
        """
        self._worker, self._waiting_rows = worker, waiting_rows

    def note_step(
        self,
        step: int,
        events: int,
        newest: float,
        progress: dict[str, ProgressiveMetrics],
        busy_seconds: float,
    ) -> None:
        """Notes the state after a step, or while no events come."""
        now = time.monotonic()
        self._step, self._events, self._newest = step, events, newest
        self._progress = progress
        self._rates.append((now, events, busy_seconds))
        while len(self._rates) > 2 and self._rates[0][0] < now - _RATE_SECONDS:
            self._rates.popleft()

    def note_checkpoints(self, outcomes: Iterable[Outcome]) -> None:
        """Notes the outcomes of checkpoints."""
        for outcome in outcomes:
            if outcome.failure is not None:
                self._failures += 1
                self._checkpoint_error = str(outcome.failure)
                continue
            self._written += 1
            self._failures, self._checkpoint_error = 0, ""
            self._checkpoint = outcome.position.step, time.time()

    @property
    def wants_pause(self) -> bool:
        """Whether training must stand still."""
        return self._pause_reason is not None

    def note_paused(self, paused: bool) -> None:
        """Notes that training stands still, or goes on."""
        with self._changed:
            if paused != self._is_paused:
                self._is_paused, self._state_since = paused, time.time()
            self._changed.notify_all()

    def note_ended(self, reason: str) -> None:
        """Notes that training has ended."""
        self._ended, self._state_since = reason, time.time()

    def note_scores(self, scores: CanaryScores | None) -> None:
        """Notes the canary's scores of the newest cut."""
        before, self._last_scores = self._last_scores, scores
        if before is not None and scores is not None:
            self._score_change = abs(scores.mean - before.mean)

    def note_servers(self, difference: float, trouble: str) -> None:
        """Notes how far scores of servers differ from the canary's, and which do not answer."""
        self._server_difference, self._server_trouble = difference, trouble

    def close(self) -> None:
        """Ends the thread that asks for the lag."""
        self._closed.set()
        self._thread.join()

    # --- calls of operators ---

    def pause(self, reason: str) -> None:
        """See `Control`."""
        self._require_running()
        with self._changed:
            self._pause_reason = reason or "no reason given"
            self._await(lambda: self._is_paused)

    def resume(self, force: bool) -> None:
        """See `Control`."""
        self._require_running()
        gate = None if self._worker is None else self._worker.gate
        closed = gate is not None and gate.is_closed
        if not self.wants_pause and not closed and not force:
            raise FailedPreconditionError("the trainer is neither paused nor is its gate closed")
        if gate is not None and (closed or force):
            gate.open(force)
        with self._changed:
            self._pause_reason = None
            self._await(lambda: not self._is_paused)

    def rollback(self, to: str) -> str:
        """See `Control`."""
        self._require_running()
        if self._worker is None:
            raise FailedPreconditionError("this trainer publishes nothing")
        cut = self._worker.roll_back(int(to, 16))
        return f"{cut.version:016x}"

    def status(self) -> online_pb2.TrainerStatus:
        """See `Control`."""
        state, reason, since = self._state()
        online = self._config.online
        status = online_pb2.TrainerStatus(
            run=self._config.name,
            model="" if online.models is None else (online.model or self._config.name),
            run_id=self._run_id,
            state=state,
            reason=reason,
            since=since,
            time=time.time(),
            step=self._step,
            ranks=self._ranks,
            stream=self._stream_status(),
            progressive=[_progressive(m, p.progress()) for m, p in self._progress.items()],
            checkpoints=self._checkpoints_status(),
            directory=self._run_dir,
            version=__version__,
            busy_seconds=self._rates[-1][2],
            busy=self._rates_now()[1],
        )
        if self._worker is not None:
            status.publishing.CopyFrom(self._publishing_status(self._worker))
        return status

    def _state(self) -> tuple[_State, str, float]:
        worker = self._worker
        fenced = worker is not None and worker.failure is not None
        if fenced:
            assert worker is not None
            return _State.FENCED, str(worker.failure), self._state_since
        if self._ended:
            return _State.ENDED, self._ended, self._state_since
        if self._is_paused:
            return _State.PAUSED, self._pause_reason or "", self._state_since
        if worker is not None and worker.gate.is_closed:
            return _State.GATE_CLOSED, worker.gate.reason, worker.gate.since
        return _State.TRAINING, "", self._state_since

    def _rates_now(self) -> tuple[float, float]:
        """Returns events a second, and the share of time in training, of the last seconds."""
        then, events, busy = self._rates[0]
        newest = self._rates[-1]
        seconds = time.monotonic() - then  # the last step may be long ago: it may be paused
        if seconds <= 0:
            return 0.0, 0.0
        return (newest[1] - events) / seconds, min(1.0, (newest[2] - busy) / seconds)

    def _stream_status(self) -> online_pb2.Stream:
        counts = self._stream.counts()
        stream = online_pb2.Stream(
            source=self._source,
            events=self._events,
            events_per_second=self._rates_now()[0],
            **{name: counts.get(name, 0) for name in ("bad", "late", "joined", "expired", "early")},
            trouble=self._trouble,
        )
        if self._lag.events is not None:
            stream.lag_events = self._lag.events
        if self._lag.seconds is not None:
            stream.lag_seconds = self._lag.seconds
        if not math.isnan(self._newest):
            stream.newest_event = self._newest
        return stream

    def _checkpoints_status(self) -> online_pb2.Checkpoints:
        status = online_pb2.Checkpoints(
            written=self._written, failures=self._failures, error=self._checkpoint_error
        )
        if self._checkpoint is not None:
            status.step, status.time = self._checkpoint
        return status

    def _publishing_status(self, worker: CutWorker) -> online_pb2.Publishing:
        counts, gate, online = worker.counts, worker.gate, self._config.online
        status = online_pb2.Publishing(
            cuts=counts.cuts,
            rows=counts.rows,
            coalesced_rows=counts.coalesced_rows,
            waiting_rows=self._waiting_rows(),
            failures=counts.failures,
            failures_total=counts.failures_total,
            error=counts.error,
            folded=f"{counts.folded:016x}" if counts.folded else "",
            base_exports=counts.base_exports,
            gate=online_pb2.Gate(
                closed=gate.is_closed,
                reason=gate.reason,
                since=gate.since,
                closed_total=gate.closed_total,
            ),
            fenced=worker.failure is not None,
            publish_seconds=counts.publish_seconds.message(),
            event_to_commit_seconds=counts.event_to_commit_seconds.message(),
            models=online.models or "",
            store=str(parse_store_url("online.store", online.store or "")),
            unfolded_cuts=counts.unfolded_cuts,
            publish_every_seconds=online.publish_seconds,
        )
        last = counts.last
        if last is not None:
            status.last.CopyFrom(
                online_pb2.Cut(
                    version=f"{last.version:016x}",
                    step=last.step,
                    rows=last.rows,
                    removed=last.removed,
                    bytes=last.bytes,
                    committed=counts.committed,
                    stage_seconds=counts.stage_seconds,
                    dense=bool(last.dense_places) and not last.dense_version,
                )
            )
        if online.canary is not None:
            status.canary.CopyFrom(self._canary_status())
        return status

    def _canary_status(self) -> online_pb2.Canary:
        canary = online_pb2.Canary(
            trouble=self._server_trouble, tolerance=self._config.online.canary_tolerance
        )
        if self._last_scores is not None:
            canary.mean_score = self._last_scores.mean
            if not math.isnan(self._last_scores.auc):
                canary.auc = self._last_scores.auc
        if self._score_change is not None:
            canary.change = self._score_change
        if self._server_difference is not None:
            canary.server_difference = self._server_difference
        return canary

    def _require_running(self) -> None:
        if self._ended:
            raise FailedPreconditionError(f"the trainer ends: {self._ended}")
        if self._worker is not None and self._worker.failure is not None:
            raise FailedPreconditionError(f"the trainer ends: {self._worker.failure}")

    def _await(self, done: Callable[[], bool]) -> None:
        """Waits for the training thread; in the condition."""
        if not self._changed.wait_for(lambda: done() or bool(self._ended), _EFFECT_SECONDS):
            raise DeadlineExceededError(
                f"the present step has taken longer than {_EFFECT_SECONDS:g} s; the trainer does "
                "as asked when it ends"
            )

    def _watch_lag(self) -> None:
        while not self._closed.wait(_LAG_SECONDS):
            try:
                self._lag = self._stream.lag()
                self._trouble = ""
            except HotrowError as err:
                self._lag, self._trouble = Lag(), str(err)


def _progressive(model: str, progress: Progress) -> online_pb2.Progressive:
    message = online_pb2.Progressive(model=model, total=_metrics(progress.total))
    if progress.window is not None:
        message.window.CopyFrom(_metrics(progress.window))
    return message


def _metrics(quality: Quality) -> online_pb2.Metrics:
    message = online_pb2.Metrics(events=quality.rows)
    for name in ("auc", "logloss", "calibration"):
        value = getattr(quality, name)
        if math.isfinite(value):
            setattr(message, name, value)
    return message
