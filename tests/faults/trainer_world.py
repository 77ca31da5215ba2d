"""A store, a trainer that learns online, two servers and their clients, and what clients saw.

The trainer is `platform train --online`, which reads a Redis Stream of its own and publishes to the
store that faults hit. Each answer must be exact: all rows and weights are those after one batch of
the stream (`counted_run.py`).
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from faults.clocks import Clock, ClockFaults
from faults.counted_answers import Answer, ask, wrong_in
from faults.counted_events import BATCH, GROUPS, CountedEvents
from faults.counted_run import NAME, CountedRun
from faults.faulty_store import FaultyStore
from faults.running import run_schedule
from faults.schedule import Fault
from faults.server_faults import ServerFaults
from faults.summary import SOON, Verdict
from faults.supervised import SupervisedTrainer
from integration.serving.conftest import Server
from waiting import wait_until

from hotrow.errors import HotrowError

SERVERS = 2
CLIENTS = 4
CONVERGES_SECONDS = 120.0
"""Later is bad. How long it took is in each result; it depends on the machine."""
_FLAGS = (
    "--cache_rows=60",  # of 193
    "--store_timeout_ms=500",
    "--load_retry_interval_micros=500000",
    "--max_num_load_retries=100",
)
_ALL = range(GROUPS)
_ASKED = 12  # groups of a request
_PAUSE = 0.08  # of a client between two requests
_SNAPSHOT_SECONDS = 1.0
_LOOK_SECONDS = 0.05


class TrainerWorld:
    """Lives through schedules, one after the other.

    The process must have a clock file (`clocks.py`), whose library the others' clocks have, too.

    Args:
        folder: for all files.
        seed: of the events.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._open = contextlib.ExitStack()
        self._began = time.monotonic()
        self._reports: list[str] = []
        library = Clock.of_this_process().library
        clocks = [Clock(folder / f"server{n}.clock", library) for n in range(SERVERS)]
        own = Clock(folder / "trainer.clock", library)
        store = self._store = FaultyStore(folder, library)
        self._open.callback(store.close)
        self._events = CountedEvents(folder / "source", seed)
        self._open.callback(self._events.close)
        self._events.start()
        self._work = CountedRun(folder / "work", store.cluster.url, self._events.url)
        trainer = self._trainer = SupervisedTrainer(self._work, self._events.url, own, self._report)
        self._open.callback(trainer.close)
        models = self._work.folder / "models" / NAME
        wait_until((models / "1").exists, lambda: "\n".join(trainer.log()), 120)
        self._servers = []
        for clock in clocks:
            server = Server(NAME, models, *_FLAGS, variables=clock.variables)
            self._open.callback(server.close)
            self._servers.append(server)
        for server in self._servers:
            server.wait_ready()
        clock_faults = ClockFaults(store.clocks, clocks, own)
        self._faults = [
            *(store.network, clock_faults, store.faults, ServerFaults(self._servers)),
            *(self._events, trainer),
        ]

    def close(self) -> None:
        """Ends all processes."""
        self._open.close()

    def live_through(self, schedule: Sequence[Fault], seconds: float) -> Verdict:
        """Runs a schedule, then waits until all is well again."""
        trainer = self._trainer
        self._began = time.monotonic()
        self._reports.clear()
        before = len(trainer.starts), trainer.refused, trainer.taken_over, self._work.versions()
        seen: list[list[Answer]] = [[] for _ in range(CLIENTS)]
        ended, is_quiet = threading.Event(), threading.Event()
        threads = [
            threading.Thread(target=self._ask, args=(number, seen[number], ended), daemon=True)
            for number in range(CLIENTS)
        ]
        snapshots = threading.Thread(target=self._keep_snapshots, args=(is_quiet,), daemon=True)
        for thread in (*threads, snapshots):
            thread.start()
        self._events.start()
        run_schedule(schedule, seconds, self._faults, self._report)
        self._events.stop()
        is_quiet.set()
        snapshots.join()
        verdict = Verdict()
        self._converge(verdict)
        ended.set()
        for thread in threads:
            thread.join()
        self._judge(seen, verdict)
        verdict.violations += trainer.problems
        trainer.problems.clear()
        verdict.counts["starts"] = len(trainer.starts) - before[0]
        verdict.counts["refused_trainers"] = trainer.refused - before[1]
        verdict.counts["takeovers"] = trainer.taken_over - before[2]
        verdict.counts["full_exports"] = self._work.versions() - before[3]
        if not verdict.is_good or max(verdict.came_up, verdict.stored) > SOON:
            verdict.state = self._state()
        return verdict

    def end(self) -> list[str]:
        """Ends the trainer as its user does; returns what its checkpoint and store do not have."""
        code = self._trainer.stop()
        if code != 128 + 15:
            return [f"the trainer ended with {code}: {self._trainer.log()[-5:]}"]
        history = self._events.read()
        wrong = self._work.wrong_checkpoint(history[-1], len(history) - 1, self._trainer.run)
        wrong += self._work.wrong_rows(history[-1])
        return wrong + self._work.wrong_dead_letters(self._events.refused, self._trainer.run)

    # --- the quiet ---

    def _converge(self, verdict: Verdict) -> None:
        """Waits until all show the last batch; notes how long that took."""
        quiet = time.monotonic()
        end = quiet + CONVERGES_SECONDS
        self._events.fill_up()
        history = self._events.read()
        verdict.counts["events"] = (len(history) - 1) * BATCH
        if not self._wait(self._all_are_up, end):
            verdict.violations.append("a process does not come up again")
            return
        up = time.monotonic()
        verdict.came_up = up - quiet
        self._report("all processes are up")
        events = (len(history) - 1) * BATCH
        if not self._wait(lambda: self._trainer.trained() == events, end):
            return
        self._report("the trainer has trained the last batch")
        if not self._wait(lambda: self._shows(history), end):
            return
        verdict.converged = time.monotonic() - up
        self._report("the servers show the last batch")
        wrong: list[str] = []
        if not self._wait(lambda: self._stores(history, wrong), end):
            verdict.violations += wrong
            return
        verdict.stored = time.monotonic() - up
        self._report("the store has the last batch")

    def _all_are_up(self) -> bool:
        """The cluster is whole, the trainer's admin service and the servers answer."""
        try:
            self._store.cluster.wait_healthy(_LOOK_SECONDS)
        except Exception:
            return False
        if self._trainer.trained() is None:
            return False
        return all(ask(server, _ALL, timeout=5.0).steps is not None for server in self._servers)

    def _shows(self, history: np.ndarray) -> bool:
        steps = len(history) - 1
        answers = [ask(server, _ALL, timeout=5.0) for server in self._servers]
        return all(
            one.steps == steps and one.stale is None and not wrong_in(one, history)
            for one in answers
        )

    def _stores(self, history: np.ndarray, wrong: list[str]) -> bool:
        """Whether the store has the rows of the last batch; what it does not is `wrong`."""
        try:
            wrong[:] = self._work.wrong_rows(history[-1])
        except (HotrowError, OSError) as err:  # cuts are folded meanwhile
            wrong[:] = [f"the store cannot be read: {err}"]
        return not wrong

    @staticmethod
    def _wait(done: Callable[[], bool], end: float) -> bool:
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    # --- the clients ---

    def _ask(self, number: int, seen: list[Answer], ended: threading.Event) -> None:
        chance = random.Random(number)
        server = self._servers[number % SERVERS]
        while not ended.wait(_PAUSE):
            groups = chance.sample(_ALL, _ASKED)
            seen.append(ask(server, groups, timeout=10.0))

    def _judge(self, seen: list[list[Answer]], verdict: Verdict) -> None:
        history = self._events.read()
        shown = set()
        for number, answers in enumerate(seen):
            newest, starts = 0, list(self._trainer.starts)
            for answer in answers:
                if answer.steps is None:
                    verdict.failures += 1
                    continue
                verdict.answers += 1
                shown.add((number % SERVERS, answer.steps))
                problem = wrong_in(answer, history)
                # A resumed trainer publishes what its checkpoint has, and goes on from there.
                started = [at for at in starts if at <= answer.ended]
                if not problem and answer.steps < newest and answer.stale is None:
                    if any(at >= self._began for at in started):
                        verdict.rewinds += 1
                        newest, starts = 0, starts[len(started) :]
                    else:
                        problem = f"{answer.steps} batches after {newest}"
                if answer.stale is None or not problem:
                    newest = max(newest, answer.steps)
                if problem and answer.stale is not None:
                    verdict.announced += 1
                elif problem:
                    at = f"{answer.began - self._began:.2f} to {answer.ended - self._began:.2f} s"
                    verdict.violations.append(f"client {number}: {at}: {problem}")
        verdict.cuts = len(shown)

    # --- reports ---

    def _keep_snapshots(self, ended: threading.Event) -> None:
        while not ended.wait(_SNAPSHOT_SECONDS):
            self._store.faults.take_snapshots()

    def _report(self, line: str) -> None:
        self._reports.append(f"{time.monotonic() - self._began:.2f} s: {line}")

    def _state(self) -> list[str]:
        lines = [*self._store.faults.state(), *self._reports[-200:]]
        lines.append(f"the trainer has trained {self._trainer.trained()}")
        history = self._events.read()
        for number, server in enumerate(self._servers):
            answer = ask(server, _ALL, timeout=5.0)
            wrong = wrong_in(answer, history) if answer.steps is not None else answer.problem
            lines.append(f"server {number}: {answer.steps} of {len(history) - 1}: {wrong}")
            lines += server.lines[-40:]
        return lines
