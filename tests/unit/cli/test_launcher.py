"""The launcher of ranks: what it passes on, and what it says when a rank dies."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import pytest

from hotrow.cli import launcher
from hotrow.cli.launched import LAUNCHER, Launched, exit_codes, killed, pids
from hotrow.errors import FailedPreconditionError

BANNER = b"""
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 6671 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""

# A kept rank that says its process id and goes on until it is killed.
WAITING = """
import os, time
from hotrow.cli import kept_rank, main
def wait(): print(os.getpid(), flush=True), time.sleep(60)
main.main = wait
kept_rank.main()
"""


class Sink(io.TextIOWrapper):
    """A text stream that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def text(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined]


def test_lines_of_the_ranks_pass_and_those_of_mpiexec_are_understood():
    report, sink = launcher._Report(), Sink()
    launcher._pass_on(io.BytesIO(b"a\n\nb\nlast" + BANNER), sink, report)
    assert sink.text() == b"a\n\nb\nlast\n"
    assert (report.pid, report.exit_code, report.signal) == (6671, 9, 9)


def test_errors_are_kept_until_it_is_known_whether_a_rank_died():
    report, sink = launcher._Report(), Sink()
    launcher._pass_on(io.BytesIO(b"x\nError: no\n"), sink, report)
    assert sink.text() == b"x\n"
    assert report.errors == [b"Error: no\n"]


@pytest.fixture
def folder(tmp_path):
    """The launcher's folder, with two ranks and their keepers."""
    for rank in (0, 1):
        (tmp_path / f"pid.{rank}").write_text(str(70 + rank))
        (tmp_path / f"keeper.{rank}").write_text(str(80 + rank))
    return tmp_path


# mpiexec reports the first rank of all that ended, be it one that it killed itself.
REPORT = launcher._Report(pid=80, exit_code=9, signal=9)


def test_the_rank_that_was_killed_is_named_before_those_that_ended_of_its_absence(folder):
    (folder / "killed.0").write_text("6 2000")
    (folder / "killed.1").write_text("9 1999")
    assert str(launcher._death(REPORT, folder, 9)) == "rank 1 was killed by signal 9 (SIGKILL)"


def test_a_rank_that_said_why_it_ends_was_not_killed(folder):
    (folder / "killed.0").write_text("6 1")
    (folder / "exit.0").write_text("1")
    (folder / "killed.1").write_text("9 2")
    assert launcher._death(REPORT, folder, 9).rank == 1


@pytest.mark.parametrize("pid", [70, 80])
def test_without_a_record_the_rank_is_the_one_that_mpiexec_reports(folder, pid):
    report = launcher._Report(pid=pid, exit_code=9, signal=9)
    assert str(launcher._death(report, folder, 9)) == "rank 0 was killed by signal 9 (SIGKILL)"
    unknown = launcher._Report(pid=9, exit_code=3)
    assert str(launcher._death(unknown, folder, 9)) == "a rank ended with exit code 3"


def test_without_mpiexec_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(FailedPreconditionError, match="pip install mpich mpi4py"):
        launcher.launch(2, ["train", "c.yaml"], tmp_path)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_ranks_that_did_not_start_is_the_one_line(tmp_path, monkeypatch, count):
    script = tmp_path / "mpiexec"
    banner = BANNER.replace(b"Killed (signal 9)", b"1").replace(b"EXIT CODE: 9", b"EXIT CODE: 1")
    (tmp_path / "report").write_bytes(b"Error: no MPI here\n" * count + banner)
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/report >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    err = Sink()
    monkeypatch.setattr(sys, "stderr", err)
    assert launcher.launch(2, ["train", "c.yaml"], tmp_path) == 1
    assert err.text().replace(b"\n\n", b"\n") == b"Error: no MPI here\n"


def test_ranks_report_their_process_and_their_end(tmp_path, monkeypatch):
    monkeypatch.setenv(LAUNCHER, f"{os.getpid()}:{tmp_path}")
    rank = Launched(3)
    assert pids(tmp_path) == {os.getpid(): 3}
    assert exit_codes(tmp_path) == {}
    rank.ended(2)
    assert exit_codes(tmp_path) == {3: 2}


def test_a_keeper_ends_as_its_rank_and_records_the_signal_that_killed_it(tmp_path):
    environment = {**os.environ, LAUNCHER: f"{os.getpid()}:{tmp_path}", "PMI_RANK": "1"}
    command = [sys.executable, "-m", "hotrow.cli.kept_rank"]
    done = subprocess.run([*command, "train", "--nothing"], env=environment, capture_output=True)
    assert done.returncode == 2
    assert killed(tmp_path) == []
    waiting = [sys.executable, "-c", WAITING]
    keeper = subprocess.Popen(waiting, env=environment, stdout=subprocess.PIPE, text=True)
    os.kill(int(keeper.stdout.readline()), signal.SIGKILL)
    assert keeper.wait() == -signal.SIGKILL
    keeper.stdout.close()
    assert killed(tmp_path) == [(1, signal.SIGKILL)]
    assert pids(tmp_path, "keeper") == {keeper.pid: 1}


def test_a_process_that_was_started_otherwise_reports_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv(LAUNCHER, raising=False)
    Launched(0).ended(1)
    assert not list(tmp_path.iterdir())


def test_folders_of_launchers_that_were_killed_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (f"hotrow-ranks-{gone.pid}-a", f"hotrow-ranks-{os.getpid()}-b", "other"):
        (tmp_path / name).mkdir()
    launcher._remove_leftovers()
    assert {path.name for path in tmp_path.iterdir()} == {f"hotrow-ranks-{os.getpid()}-b", "other"}
