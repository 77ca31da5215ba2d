"""Runs Python programs as ranks under the environment's own mpiexec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class RankResults:
    """The result of a program: mpiexec's exit code and each rank's output, by rank.

    `launcher`: the output of mpiexec itself.
    """

    exit_code: int
    outputs: list[str]
    errors: list[str]
    launcher: str


def mpiexec() -> str:
    """Returns the path of the launcher that came with this environment's MPI."""
    return str(Path(sys.executable).with_name("mpiexec"))


def run_ranks(
    count: int,
    program: str | Sequence[str],
    *,
    executable: str = sys.executable,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> RankResults:
    """Runs `program` on `count` ranks and returns the result; none of its processes is left.

    Args:
        program: Python source, or arguments of the Python interpreter.
        executable: what runs in place of Python; `program` are its arguments.
        env: variables beside those of this process.
        timeout: seconds; then all are killed.

    Raises:
        TimeoutError: it took longer; with the ranks' output.
    """
    arguments = ["-c", program] if isinstance(program, str) else [str(a) for a in program]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            mpiexec(), "-n", str(count),
            "-outfile-pattern", f"{folder}/%r.out", "-errfile-pattern", f"{folder}/%r.err",
            executable, *arguments,
        ]  # fmt: skip
        launched = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            launcher, _ = launched.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as err:
            _kill_session(launched.pid)
            launched.communicate()
            said = [_said(Path(folder), r, kind) for r in range(count) for kind in ("out", "err")]
            raise TimeoutError(f"{count} ranks took more than {timeout} s: {said}") from err
        finally:
            _kill_session(launched.pid)
        return RankResults(
            launched.returncode,
            [_said(Path(folder), rank, "out") for rank in range(count)],
            [_said(Path(folder), rank, "err") for rank in range(count)],
            launcher,
        )


def _said(folder: Path, rank: int, kind: str) -> str:
    path = folder / f"{rank}.{kind}"
    return path.read_text(errors="replace") if path.exists() else ""


def _kill_session(session: int) -> None:
    """Kills what is left of a session: the launcher's children have process groups of their own."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may have anything in it: state, parent, group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
