"""Starts the ranks of a run on this machine, and reports in one line if one of them dies.

The ranks run the same command, started by the `mpiexec` of the package mpich. They receive this
process's signals, and they end with it, even if it is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

import click

from hotrow.cli.kept_rank import die_with_parent
from hotrow.cli.launched import LAUNCHER, exit_codes, killed, pids
from hotrow.errors import FailedPreconditionError
from hotrow.trainer.checkpoint.stored import newest_step

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FOLDERS = "hotrow-ranks-"  # and the launcher's process id

# What mpiexec prints when a process ends early. It is reported in one line instead.
_BANNER = re.compile(
    rb"=+\s*$|=   |YOUR APPLICATION TERMINATED|This typically refers to|Please see the FAQ page"
)
_ENDED = re.compile(rb"=   PID (\d+) RUNNING AT")
_EXIT_CODE = re.compile(rb"=   EXIT CODE: (\d+)")
_SIGNAL = re.compile(rb"EXIT STRING: .*\(signal (\d+)\)")


def mpiexec() -> Path:
    """Returns the launcher that lies beside this Python.

    Raises:
        FailedPreconditionError: there is none.
    """
    path = Path(sys.executable).with_name("mpiexec")
    if not path.exists():
        raise FailedPreconditionError(
            f"--workers: no mpiexec beside {sys.executable}; pip install mpich mpi4py, or start "
            "the ranks with an MPI of your own: mpiexec -n N platform train ..."
        )
    return path


def launch(workers: int, arguments: Sequence[str], run_dir: Path) -> int:
    """Runs `platform ARGUMENTS` on ranks of this machine and returns its exit code.

    Args:
        workers: number of ranks.
        arguments: of the command line; the ranks get the same.
        run_dir: of the run, for the message when a rank dies.

    Raises:
        FailedPreconditionError: there is no mpiexec, or it does not start.
    """
    command = [str(mpiexec()), "-launcher", "fork", "-n", str(workers)]
    command += [sys.executable, "-m", "hotrow.cli.kept_rank", *arguments]
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDERS}{os.getpid()}-") as folder:
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, LAUNCHER: f"{os.getpid()}:{folder}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C comes once, from here
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except OSError as err:
            raise FailedPreconditionError(f"{command[0]} does not start: {err.strerror}") from err
        report = _Report()
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = [
            threading.Thread(target=_pass_on, args=(source, sink, report), daemon=True)
            for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        ]
        for pump in pumps:
            pump.start()
        with _forwarding(process, Path(folder)) as forwarded:
            code = process.wait()
            for pump in pumps:
                pump.join()
            process.stdout.close()
            process.stderr.close()
        ended = exit_codes(Path(folder))
        death = _death(report, Path(folder), code)
    was_killed = death.signal is not None and death.rank not in ended
    if code == 0 or ((any(ended.values()) or report.errors) and not was_killed):
        for line in dict.fromkeys(report.errors):  # ranks that cannot start print the same
            sys.stderr.buffer.write(line)
        sys.stderr.flush()
        return next((number for _, number in sorted(ended.items()) if number), code)
    if forwarded:  # before the ranks were ready to take it
        name = signal.Signals(forwarded[0]).name
        click.echo(f"stopped by {name}; {_what_now(run_dir)}", err=True)
        return 128 + forwarded[0]
    click.echo(f"Error: {death}, so all ranks ended; {_what_now(run_dir)}", err=True)
    return 1


def _remove_leftovers() -> None:
    """Removes the folders of launchers that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        number = path.name.removeprefix(_FOLDERS).partition("-")[0]
        if number.isdecimal() and not Path("/proc", number).exists():
            shutil.rmtree(path, ignore_errors=True)


@dataclass
class _Report:
    """mpiexec's report of a process that ended early, and the ranks' own errors."""

    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    errors: list[bytes] = field(default_factory=list)

    def take(self, line: bytes) -> bool:
        """Takes a line of mpiexec's report or an error; returns whether the line was one."""
        if line.startswith(b"Error: "):
            self.errors.append(line)  # the death of a rank takes precedence
            return True
        if not _BANNER.match(line):
            return False
        if (found := _ENDED.match(line)) and self.pid is None:
            self.pid = int(found[1])
        if (found := _EXIT_CODE.match(line)) and self.exit_code is None:
            self.exit_code = int(found[1])
        if (found := _SIGNAL.search(line)) and self.signal is None:
            self.signal = int(found[1])
        return True


def _pass_on(source: IO[bytes], sink: Any, report: _Report) -> None:
    """Forwards lines, except mpiexec's report of a process that ended."""
    blank = 0  # blank lines to forward, unless they belong to mpiexec's report
    for line in source:
        if line == b"\n":
            blank += 1
            continue
        if report.take(line):
            blank = 0
            continue
        with contextlib.suppress(OSError, ValueError):
            sink.buffer.write(b"\n" * blank + line)
            sink.flush()
        blank = 0


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[bytes], folder: Path) -> Iterator[list[int]]:
    """A context in which SIGINT and SIGTERM go to the ranks; a second one ends them at once.

    Yields the signals received so far.
    """
    came: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        known = pids(folder)
        if len(came) > 1 or not known:
            # The process manager below mpiexec ends with it, and the ranks with this process.
            process.kill()
        for pid in known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number if len(came) == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Death:
    """How a rank ended; rank: None if unknown."""

    rank: int | None
    signal: int | None
    exit_code: int

    def __str__(self) -> str:
        who = "a rank" if self.rank is None else f"rank {self.rank}"
        if self.signal is None:
            return f"{who} ended with exit code {self.exit_code}"
        return f"{who} was killed by signal {self.signal} ({signal.Signals(self.signal).name})"


def _death(report: _Report, folder: Path, code: int) -> _Death:
    """Returns how the first rank died, whose death ended the others.

    mpiexec may report a rank that it killed itself, so a signal that a rank's parent recorded takes
    precedence.
    """
    ended = exit_codes(folder)
    exit_code = report.exit_code if report.exit_code is not None else code
    for rank, number in killed(folder):
        if rank not in ended:
            return _Death(rank, number, exit_code)
    known = pids(folder) | pids(folder, "keeper")
    return _Death(known.get(report.pid or -1), report.signal, exit_code)


def _what_now(run_dir: Path) -> str:
    step = newest_step(run_dir)
    if step is None:
        return "there is no checkpoint yet; start again"
    return f"the newest checkpoint is of step {step}; continue with --resume --run-dir {run_dir}"
