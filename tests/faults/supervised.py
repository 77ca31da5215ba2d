"""A trainer that learns online, and who starts it again when it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import urllib.error
from collections.abc import Callable
from typing import Any

from faults.clocks import Clock
from faults.counted_run import CountedRun
from full_disk import fill_disk_of, free_disk_of
from integration.online.online_run import folders_of

_LOOK_SECONDS = 0.05
_PAUSE = 0.3  # before it is started again
_LEAST_BYTES = 512
_REFUSAL = "another process publishes model"
_FIRST = "run"


class SupervisedTrainer:
    """Keeps a trainer of a run alive, and does the faults of its process.

    A second trainer has a run of its own and must end by itself. If it could take the export lock,
    as after a clock of the store has jumped, the first one must end, and the second one is kept
    alive in its place. A second trainer that starts while its source is away ends, too.

    Args:
        work: the runs.
        source: URL of their events.
        clock: of the trainers.
        report: called with lines about them.

    Attributes:
        starts: when trainers were started, by `time.monotonic`.
        refused: how many second trainers ended as they must. taken_over: how many took over.
        problems: what may not happen, as text.
    """

    def __init__(
        self, work: CountedRun, source: str, clock: Clock, report: Callable[[str], None]
    ) -> None:
        self._work, self._clock, self._report = work, clock, report
        self._source = source.partition("?")[0]  # as in errors
        self._lock = threading.Lock()
        self._closed = False
        self._away_until = 0.0
        self._runs = 0
        self.run = _FIRST
        self.starts: list[float] = []
        self.refused = self.taken_over = 0
        self.problems: list[str] = []
        self._second: tuple[str, subprocess.Popen[Any]] | None = None
        self._killed: set[int] = set()
        self._reported: dict[str, int] = {}  # bytes of the logs
        self._process = self._start(_FIRST)
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Kills the trainers."""
        self._end_supervision()
        self._work.close()

    def stop(self) -> int:
        """Ends the trainer as its user does; returns its exit code."""
        self._end_supervision()
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            return 0

    def trained(self) -> int | None:
        """Returns how many events its page of metrics shows; None: it does not answer."""
        if self._process.poll() is not None or self._second is not None:
            return None
        try:
            return self._work.trained(self.run) or None
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def log(self) -> list[str]:
        """Returns the last lines of the trainer."""
        return self._work.log(f"{self.run}.log").splitlines()[-40:]

    # --- faults ---

    def kill_trainer(self, target: int, lasts: float) -> None:
        """Kills it; it is started again after a while."""
        with self._lock:
            self._away_until = time.monotonic() + lasts
            self._killed.add(self._process.pid)
            self._process.kill()

    def stop_trainer(self, target: int, lasts: float) -> None:
        """Stops it for a while."""
        process = self._process
        process.send_signal(signal.SIGSTOP)
        time.sleep(lasts)
        process.send_signal(signal.SIGCONT)

    def start_second_trainer(self, target: int, lasts: float) -> None:
        """Starts another one of the same model and store, with a run of its own."""
        with self._lock:
            if self._second is None:
                self._runs += 1
                name = f"second-{self._runs}"
                self._second = name, self._start(name)

    def fill_trainer_disk(self, target: int, lasts: float) -> None:
        """Lets it write no file, also none of what it prints."""
        process = self._process
        with contextlib.suppress(OSError):
            fill_disk_of(process.pid, _LEAST_BYTES)
        time.sleep(lasts)
        self._give_room(process)

    def kill_folder(self, target: int, lasts: float) -> None:
        """Kills the process that folds its cuts; the trainer starts another one."""
        self._signal_folders(signal.SIGKILL)

    def stop_folder(self, target: int, lasts: float) -> None:
        """Stops that process for a while."""
        self._signal_folders(signal.SIGSTOP)
        time.sleep(lasts)
        self._signal_folders(signal.SIGCONT)

    def lift(self) -> None:
        """Gives it room; it is not stopped any more."""
        self._give_room(self._process)
        self._process.send_signal(signal.SIGCONT)
        self._signal_folders(signal.SIGCONT)

    def _signal_folders(self, number: signal.Signals) -> None:
        for pid in folders_of(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @staticmethod
    def _give_room(process: subprocess.Popen[Any]) -> None:
        with contextlib.suppress(OSError):
            free_disk_of(process.pid)

    # --- supervision ---

    def _start(self, run: str) -> subprocess.Popen[Any]:
        has_begun = (self._work.folder / run / "config.yaml").exists()
        self.starts.append(time.monotonic())
        self._report(f"the trainer of {run} is started")
        flags = ("--resume",) if has_begun else ()
        variables = {**self._clock.variables, "TF_CPP_MIN_LOG_LEVEL": "3"}
        return self._work.start(*flags, run=run, log=f"{run}.log", variables=variables)

    def _keep_alive(self) -> None:
        while not self._closed:
            time.sleep(_LOOK_SECONDS)
            self._report_lines()
            with self._lock:
                self._see_to_second()
                if self._process.poll() is not None and time.monotonic() > self._away_until:
                    self._see_to_first()

    def _report_lines(self) -> None:
        for file in sorted(self._work.folder.glob("*.log")):
            known = self._reported.get(file.name, 0)
            with file.open(encoding="utf-8") as log:
                log.seek(known)
                for line in log.read().splitlines():
                    self._report(f"{file.stem}: {line}")
                self._reported[file.name] = log.tell()

    def _see_to_first(self) -> None:
        code = self._process.returncode
        log = "\n".join(self.log())
        is_fenced = code == 1 and _REFUSAL in log
        self._report(f"the trainer of {self.run} has ended with {code}")
        if is_fenced and self._second is not None:
            self.run, self._process = self._second
            self._second = None
            self.taken_over += 1
            self._report(f"the trainer of {self.run} has taken over")
            return
        if self._process.pid not in self._killed:
            self.problems.append(f"the trainer of {self.run} ended with {code}: {log[-1500:]}")
        self._away_until = time.monotonic() + _PAUSE
        self._process = self._start(self.run)

    def _see_to_second(self) -> None:
        if self._second is None:
            return
        name, process = self._second
        code = process.poll()
        if code is None:
            return
        self._second = None
        log = self._work.log(f"{name}.log")
        self._report(f"the trainer of {name} has ended with {code}")
        if code == 1 and _REFUSAL in log:
            self.refused += 1
        elif not self._found_no_source(log):
            self.problems.append(f"a second trainer ended with {code}: {log[-1500:]}")

    def _found_no_source(self, log: str) -> bool:
        """Returns whether a new run ended because its source was away."""
        return any(line.startswith(f"Error: {self._source}: ") for line in log.splitlines()[-1:])

    def _end_supervision(self) -> None:
        self._closed = True
        self._thread.join()
        if self._second is not None:
            self._second[1].kill()
            self._second = None
