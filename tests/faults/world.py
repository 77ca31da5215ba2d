"""A store, an exporter, two servers and their clients, and what clients saw."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from faults.clocks import Clock, ClockFaults
from faults.faulty_store import NODE_TIMEOUT_SECONDS, FaultyStore
from faults.running import run_schedule
from faults.schedule import Fault
from faults.server_faults import ServerFaults
from faults.summary import Verdict
from faults.training import NAME, Trainer
from integration.serving.conftest import Server
from integration.serving.marked_rows import KEYS, TEMPORARY, Seen, ask

SERVERS = 2
CLIENTS = 4
CONVERGES_SECONDS = NODE_TIMEOUT_SECONDS + 10.0
_FLAGS = (
    "--cache_rows=100",  # of 360
    "--store_timeout_ms=500",
    # A server that starts while a cut is damaged looks again soon.
    "--load_retry_interval_micros=500000",
    "--max_num_load_retries=100",
)
_ALL = np.arange(KEYS + TEMPORARY, dtype=np.int64)
_SNAPSHOT_SECONDS = 1.0
_PAUSE = 0.04  # of a client between two requests


class World:
    """Lives through schedules, one after the other.

    The process must have a clock of its own (`clocks.py`), which is the exporter's.

    Args:
        folder: for all files.
    """

    def __init__(self, folder: Path) -> None:
        self._open = contextlib.ExitStack()
        own = Clock.of_this_process()
        clocks = [Clock(folder / f"server{n}.clock", own.library) for n in range(SERVERS)]
        store = FaultyStore(folder, own.library)
        self._open.callback(store.close)
        self.trainer = Trainer(folder / "models", store.cluster.url)
        self.servers = []
        for clock in clocks:
            server = Server(NAME, self.trainer.path, *_FLAGS, variables=clock.variables)
            self._open.callback(server.close)
            self.servers.append(server)
        for server in self.servers:
            server.wait_ready()
        self._store_faults = store.faults
        clock_faults = ClockFaults(store.clocks, clocks, own)
        # The network first: a node that is started waits for its replica.
        self._faults = [store.network, clock_faults, store.faults, ServerFaults(self.servers)]

    def close(self) -> None:
        """Ends all processes."""
        self._open.close()

    def live_through(self, schedule: Sequence[Fault], seconds: float) -> Verdict:
        """Runs a schedule, then waits until all is well again."""
        seen: list[list[Seen]] = [[] for _ in range(CLIENTS)]
        ended, exported = threading.Event(), threading.Event()
        threads = [
            threading.Thread(target=self._ask, args=(number, seen[number], ended), daemon=True)
            for number in range(CLIENTS)
        ]
        threads.append(threading.Thread(target=self._keep_snapshots, args=(exported,), daemon=True))
        training = threading.Thread(target=self.trainer.run, args=(exported,), daemon=True)
        for thread in (*threads, training):
            thread.start()
        began = time.monotonic()
        exports = self.trainer.exports
        did, failed, full = exports.ended, len(exports.failed), exports.full
        self.trainer.began = began
        self.trainer.reports.clear()
        run_schedule(schedule, seconds, self._faults, self.trainer.report)
        quiet = time.monotonic()
        exported.set()
        training.join()
        verdict = Verdict(converged=self._converge(quiet))
        ended.set()
        for thread in threads:
            thread.join()
        shown = {(n % SERVERS, s.cut) for n, answers in enumerate(seen) for s in answers}
        verdict.cuts = len({(server, cut) for server, cut in shown if cut is not None})
        for number, answers in enumerate(seen):
            _judge(f"client {number}", answers, verdict, began)
        verdict.counts = {
            "exports": exports.ended - did,
            "failed_exports": len(exports.failed) - failed,
            "full_exports": exports.full - full,
        }
        verdict.state = exports.failed[failed:][-3:]
        if not verdict.is_good:
            verdict.state += self._state()
        return verdict

    def end(self) -> list[str]:
        """Returns what is wrong at the end; each schedule has seen all of it."""
        return []

    def _converge(self, quiet: float) -> float | None:
        """Returns how long it took until both servers showed a last step, whole."""
        self.trainer.train()
        end = quiet + CONVERGES_SECONDS
        while not self.trainer.export():
            if time.monotonic() > end:
                return None
            time.sleep(0.2)
        wanted = self.trainer.step
        while time.monotonic() < end:
            answers = [ask(server, _ALL, timeout=5.0) for server in self.servers]
            if all(a.cut == wanted and not a.wrong and a.stale is None for a in answers):
                return time.monotonic() - quiet
            time.sleep(0.1)
        return None

    def _state(self) -> list[str]:
        lines = [*self._store_faults.state(), *self.trainer.reports[-100:]]
        for number, server in enumerate(self.servers):
            seen = ask(server, _ALL, timeout=5.0)
            lines.append(
                f"server {number}: {seen.cut} {seen.wrong[:2]} {seen.stale} {seen.failure}"
            )
            lines += server.lines[-40:]
        return lines

    def _ask(self, number: int, seen: list[Seen], ended: threading.Event) -> None:
        random = np.random.default_rng(number)
        server = self.servers[number % SERVERS]
        while not ended.wait(_PAUSE):
            keys = random.integers(0, KEYS + TEMPORARY, 16, dtype=np.int64)
            seen.append(ask(server, keys, timeout=10.0))

    def _keep_snapshots(self, ended: threading.Event) -> None:
        while not ended.wait(_SNAPSHOT_SECONDS):
            self._store_faults.take_snapshots()


def _judge(client: str, answers: list[Seen], verdict: Verdict, began: float) -> None:
    newest = 0
    for seen in answers:
        if seen.cut is None:
            verdict.failures += 1
            continue
        verdict.answers += 1
        is_older = seen.cut < newest
        newest = max(newest, seen.cut)
        if not seen.wrong and not is_older:
            continue
        at = f"{seen.began - began:.2f} to {seen.ended - began:.2f} s"
        if seen.stale is not None:
            verdict.announced += 1
        elif seen.wrong:
            wrong = "; ".join(seen.wrong[:3])
            verdict.violations.append(f"{client}: {at}: cut {seen.cut}: {wrong}")
        else:
            verdict.violations.append(f"{client}: {at}: cut {seen.cut} after {newest}")
