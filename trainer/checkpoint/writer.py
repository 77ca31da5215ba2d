"""Writes checkpoints beside the training: a snapshot between two steps, the files in a thread."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError, HotrowError, ResourceExhaustedError
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.sealed_directory import read_manifest, remove_leftovers, seal_of, sealing
from hotrow.trainer.agreement import of_first
from hotrow.trainer.checkpoint.array_file import Arrays
from hotrow.trainer.checkpoint.directory import Best, CheckpointDirectory
from hotrow.trainer.checkpoint.outcome import (
    EXPECTED,
    NICENESS,
    AbandonedError,
    Outcome,
    as_failure,
    no_room,
)
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.shared_write import SharedWrite
from hotrow.trainer.checkpoint.snapshot import TrainingSnapshot
from hotrow.trainer.checkpoint.stored import FULL, INCREMENT, TABLES, name_of

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker


class CheckpointWriter:
    """Decides when a checkpoint is due, takes it and writes it while training goes on.

    One is written at a time; one that falls due meanwhile is skipped. A checkpoint that cannot be
    written is reported once, and those before it stay; only the last of a run must succeed.

    All methods are for the thread that trains.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        config: CheckpointConfig,
        model: Ranker,
        optimizer: Any,
        report: Callable[[str], None],
        ranks: Ranks = LONE,
    ) -> None:
        """Writes nothing yet.

        Args:
            directory: where checkpoints go; nobody else writes there.
            config: when and how.
            model: its tables and weights are written.
            optimizer: the Keras optimizer of the dense part, built.
            report: gets a line for each checkpoint that is skipped or fails.
            ranks: that train as one. With several, `begin` and `finish` are collectives, and what
                `report` returns must reach all ranks by `receive` after each step.
        """
        self._directory = directory
        self._config = config
        self._model = model
        self._optimizer = optimizer
        self._report = report
        self._ranks = ranks
        self._running: _Write | SharedWrite | None = None
        self._outcomes: list[Outcome] = []
        self._skipped_for = -1  # the step whose writing made another be skipped
        self._begun = time.monotonic()
        self._saved: int | None = None  # the step of the newest good checkpoint
        self._chain: list[tuple[str, str]] = []  # (name, seal) of what an increment builds on
        self._lineage = Lineage().started(0)

    def continue_from(self, position: Position, lineage: Lineage) -> None:
        """Says that the run stands where its newest good checkpoint is, just restored.

        The next one will be full: which rows change is noted from a checkpoint that this process
        has written itself.

        Args:
            position: of that checkpoint.
            lineage: its.
        """
        self._saved = position.step
        self._lineage = lineage.started(position.step)

    def start_from(self, step: int, lineage: Lineage) -> None:
        """Notes that the run starts from a checkpoint of another run; it has none of its own yet.

        Args:
            step: of that checkpoint.
            lineage: its; empty: rows of before were dropped.
        """
        self._lineage = lineage.started(step)

    def due(self, step: int) -> bool:
        """Returns whether a checkpoint shall be taken after this step."""
        seconds = self._config.every_seconds
        return step % self._config.every_steps == 0 or (
            seconds is not None and time.monotonic() - self._begun >= seconds
        )

    def report(self) -> dict[str, Any] | None:
        """Returns what this rank sends the others about the writing, as a JSON value."""
        return self._running.report() if isinstance(self._running, SharedWrite) else None

    def receive(self, reports: list[Any]) -> None:
        """Takes the reports of all ranks after a step.

        Args:
            reports: what `report` returned on each rank.
        """
        if isinstance(self._running, SharedWrite):
            self._running.receive(reports)

    def begin(self, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Takes a checkpoint and returns while it is being written, or skips it.

        Args:
            position: where the run stands.
            metrics: returns those of the epoch so far.
        """
        self._collect()
        if self._running is not None:
            self._skip(position.step, self._running)
        elif self._saved != position.step:
            self._start(position, metrics, last=False)
            if not self._config.asynchronous:
                self._wait()

    def begin_best(self, best: Best, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Takes the checkpoint of the best validation so far; it is never skipped.

        It is noted as the best once it is on the disk; until then the one before stays.

        Args:
            best: of this step.
            position: where the run stands.
            metrics: returns those of the epoch so far.
        """
        self._collect()
        self._directory.awaited_best = best
        if self._running is not None and self._running.step != best.step:
            self._wait()
            self._directory.awaited_best = best
        if self._saved == best.step:
            self._note_best(best)
        elif self._running is None:
            self._start(position, metrics, last=False)
            if not self._config.asynchronous:
                self._wait()

    def outcomes(self) -> list[Outcome]:
        """Returns what became of checkpoints since the last call."""
        self._collect()
        found, self._outcomes = self._outcomes, []
        return found

    def finish(self, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Waits for the checkpoint that is being written, then writes that of `position`.

        Raises:
            HotrowError: it cannot be written; those before it stay.
        """
        self._wait()
        if self._saved == position.step:
            return
        self._start(position, metrics, last=True)
        self._wait()
        if self._saved != position.step:
            failure = self._outcomes[-1].failure
            assert failure is not None
            raise type(failure)(f"{_not_written(position.step, failure)}; {self._left()}")

    def settle(self) -> None:
        """Waits for the checkpoint that is being written, if any. A collective on several ranks."""
        self._wait()

    def close(self, abandon: bool = False) -> None:
        """Ends the writing.

        Args:
            abandon: give up the checkpoint that is being written instead of waiting for it.
        """
        if isinstance(self._running, SharedWrite):
            self._running.abandon()  # the others may be gone: no collective
        elif self._running is not None:
            if abandon:
                self._running.abandoned.set()
            self._wait()

    def _left(self) -> str:
        if self._saved is None:
            return "there is no other checkpoint"
        return f"the checkpoint of step {self._saved} stays"

    def _start(self, position: Position, metrics: Callable[[], Arrays], last: bool) -> None:
        begin = time.monotonic()
        kind, chain = self._kind()
        take = partial(
            TrainingSnapshot,
            self._model,
            self._optimizer,
            position,
            metrics(),
            kind,
            complete_digest=last,
            lineage=self._lineage,
            ranks=self._ranks,
        )
        keeps = self._config.full_every > 1
        directory, ranks = self._directory, self._ranks
        try:
            if ranks.size > 1:
                self._running = SharedWrite(
                    directory, take, position.step, chain, keeps, last, ranks
                )
            else:
                self._running = _Write(directory, take(), chain, keeps, begin, last)
        except (HotrowError, MemoryError) as err:
            if ranks.size > 1 and not getattr(err, "on_all_ranks", False):
                raise  # the ranks end: no failure of this checkpoint alone
            self._failed(Outcome(position, kind, 0, 0.0, 0.0, as_failure(err)), last)
        self._begun = time.monotonic()

    def _kind(self) -> tuple[str, list[tuple[str, str]]]:
        """Returns what the next checkpoint is, and what it builds on; the same on all ranks."""
        below = self._chain
        if not 0 < len(below) < self._config.full_every:
            return FULL, []
        # One rank looks: what each finds on the disk at this moment may differ.
        kind = self._kind_on(below) if self._ranks.is_first else None
        if self._ranks.size > 1:
            kind = of_first(self._ranks, "kind of the checkpoint", kind)
        return (INCREMENT, below) if kind == INCREMENT else (FULL, [])

    def _kind_on(self, below: list[tuple[str, str]]) -> str:
        """Returns what the next checkpoint is; an increment builds on what is there unchanged."""
        for name, seal in below:
            try:
                found = seal_of(read_manifest(self._directory.path / name))
            except DataLossError:
                found = ""
            if found != seal:
                return FULL
        return INCREMENT

    def _skip(self, step: int, running: _Write | SharedWrite) -> None:
        if self._skipped_for != running.step:
            self._skipped_for = running.step
            self._report(
                f"checkpoint of step {step} skipped: that of step {running.step} is still being "
                "written; raise checkpoint.every_steps if this goes on"
            )

    def _collect(self) -> None:
        running = self._running
        if isinstance(running, SharedWrite):
            if running.over:
                self._wait()
        elif running is not None and running.done.is_set():
            self._wait()

    def _wait(self) -> None:
        """Waits for the checkpoint that is being written, if any, and takes its outcome."""
        write = self._running
        if write is None:
            return
        begin = time.monotonic()
        if isinstance(write, SharedWrite):
            write.wait()
        else:
            write.join()
        self._running = None  # after the join, which a second Ctrl-C may leave
        waited = time.monotonic() - begin if not self._config.asynchronous else 0.0
        if isinstance(write, SharedWrite):
            self._take(write, write.outcome(waited))
            return
        if isinstance(write.error, AbandonedError):
            return
        if write.error is not None and not isinstance(write.error, EXPECTED):
            raise write.error
        self._take(write, write.outcome(waited))

    def _take(self, write: _Write | SharedWrite, outcome: Outcome) -> None:
        if outcome.failure is not None:
            self._failed(outcome, write.last)
            return
        self._saved = outcome.position.step
        if self._config.full_every > 1:
            self._chain = [*write.chain, (name_of(write.step), write.seal)]
        self._outcomes.append(outcome)
        best = self._directory.awaited_best
        if best is not None and best.step == self._saved:
            self._note_best(best)

    def _note_best(self, best: Best) -> None:
        self._directory.awaited_best = None
        if not self._ranks.is_first:
            return
        try:
            self._directory.note_best(best)
        except OSError as err:
            self._report(f"step {best.step} is not noted as the best: {err}; training goes on")
        self._directory.prune(best.step)

    def _failed(self, outcome: Outcome, last: bool) -> None:
        self._outcomes.append(outcome)
        if last:
            return  # finish() raises it
        line = _not_written(outcome.position.step, outcome.failure)
        self._report(f"{line}; {self._left()}, training goes on")


class _Write:
    """One checkpoint being written, in a thread of its own.

    Attributes:
        step: that it is of.
        chain: what it builds on.
        last: of the run.
        abandoned: set it to end the writing.
        done: set when the thread has nothing more to do.
        error: what ended it early.
        seal: of the manifest, once it is written.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        snapshot: TrainingSnapshot,
        chain: list[tuple[str, str]],
        keeps: bool,
        begin: float,
        last: bool,
    ) -> None:
        self.step = snapshot.position.step
        self.chain = chain
        self.last = last
        self.abandoned = threading.Event()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.seal = ""
        self._directory = directory
        self._snapshot = snapshot
        self._keeps = keeps
        self._begin = begin
        self._bytes = 0
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._stall = time.monotonic() - begin
        self._thread.start()

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()

    def outcome(self, waited: float) -> Outcome:
        """Returns what became of it, after `join`."""
        failure = None if self.error is None else as_failure(self.error)
        return Outcome(
            self._snapshot.position,
            self._snapshot.kind,
            self._bytes,
            self._seconds,
            self._stall + waited,
            failure,
        )

    def _run(self) -> None:
        try:
            # Steps come first on a machine whose cores are all busy.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
            self._write()
            if self._keeps:
                self._snapshot.keep()
            self._seconds = time.monotonic() - self._begin
        except BaseException as err:
            self.error = err
        try:
            self._snapshot.close()
            if self.error is None:
                self._directory.prune(self.step)
        except BaseException as err:
            self.error = self.error or err
        self.done.set()

    def _write(self) -> None:
        path = self._directory.path
        path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        needed = self._snapshot.bytes_needed
        free = shutil.disk_usage(path).free
        if needed > free:
            raise ResourceExhaustedError(no_room(needed, free, path))
        final = self._directory.of_step(self.step)
        facts: dict[str, Any] = {
            "base": self.chain[0][0] if self.chain else final.name,
            "parents": [name for name, _ in self.chain],
            "parent_seals": [seal for _, seal in self.chain],
        }
        hashed: dict[str, Any] = {}
        try:
            # One that is there already is damaged, or this run would not come by again.
            with sealing(final, facts, hashed, replace=True) as directory:
                (directory / TABLES).mkdir()
                entries = self._snapshot.write(directory, hashed, self._check)
                facts |= self._snapshot.facts([entries])
        except ResourceExhaustedError as err:
            free = shutil.disk_usage(path).free
            raise ResourceExhaustedError(f"{err}: {no_room(needed, free, path)}") from err
        manifest = read_manifest(final)
        self.seal = seal_of(manifest)
        self._bytes = sum(file["bytes"] for file in manifest["files"].values())

    def _check(self) -> None:
        if self.abandoned.is_set():
            raise AbandonedError


def _not_written(step: int, failure: HotrowError | None) -> str:
    return f"checkpoint of step {step} is not written: {failure}"
