"""The launcher of ranks: what it passes on, and what it says when a rank dies."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from hotrow.cli import launcher
from hotrow.cli.launched import LAUNCHER, Launched, exit_codes, pids
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


class Sink(io.TextIOWrapper):
    """A text stream that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def text(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined]


def test_lines_of_the_ranks_pass_and_those_of_mpiexec_are_understood():
    told, sink = launcher._Told(), Sink()
    launcher._pass_on(io.BytesIO(b"a\n\nb\nlast" + BANNER), sink, told)
    assert sink.text() == b"a\n\nb\nlast\n"
    assert (told.pid, told.exit_code, told.signal) == (6671, 9, 9)


def test_errors_are_kept_until_it_is_known_whether_a_rank_died():
    told, sink = launcher._Told(), Sink()
    launcher._pass_on(io.BytesIO(b"x\nError: no\n"), sink, told)
    assert sink.text() == b"x\n"
    assert told.errors == [b"Error: no\n"]


def test_a_death_is_told_in_one_line(tmp_path, capsys):
    told = launcher._Told(pid=7, exit_code=9, signal=9)
    launcher._tell_death(told, {7: 2}, tmp_path, 9)
    assert capsys.readouterr().err == (
        "Error: rank 2 was killed by signal 9 (SIGKILL), so all ranks ended; there is no "
        "checkpoint yet; start again\n"
    )


def test_without_mpiexec_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(FailedPreconditionError, match="pip install mpich mpi4py"):
        launcher.launch(2, ["train", "c.yaml"], tmp_path)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_ranks_that_did_not_start_is_the_one_line(tmp_path, monkeypatch, count):
    script = tmp_path / "mpiexec"
    banner = BANNER.replace(b"Killed (signal 9)", b"1").replace(b"EXIT CODE: 9", b"EXIT CODE: 1")
    (tmp_path / "told").write_bytes(b"Error: no MPI here\n" * count + banner)
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/told >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    err = Sink()
    monkeypatch.setattr(sys, "stderr", err)
    assert launcher.launch(2, ["train", "c.yaml"], tmp_path) == 1
    assert err.text().replace(b"\n\n", b"\n") == b"Error: no MPI here\n"


def test_ranks_tell_their_process_and_their_end(tmp_path, monkeypatch):
    monkeypatch.setenv(LAUNCHER, f"{os.getpid()}:{tmp_path}")
    rank = Launched(3)
    assert pids(tmp_path) == {os.getpid(): 3}
    assert exit_codes(tmp_path) == {}
    rank.ended(2)
    assert exit_codes(tmp_path) == {3: 2}


def test_a_process_that_was_started_otherwise_tells_nothing(tmp_path, monkeypatch):
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
