"""Training processes that are killed: `platform train` in children of one process, which imports
TensorFlow once for all of them and never uses it itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hotrow.trainer.checkpoint import CheckpointDirectory

_PARENT = """
import json, os, sys
import hotrow.trainer.loop  # imports TensorFlow; none of its threads runs before it is used
from hotrow.cli.main import main
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        os._exit(main(request["arguments"]))
    print(json.dumps(child), flush=True)
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""
_POLL_SECONDS = 0.001


class TrainingProcesses:
    """Runs `platform train`, each time in a new process. Close it."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self, arguments, log: Path) -> Child:
        """Starts one; only one runs at a time."""
        request = {"arguments": [str(a) for a in arguments], "log": str(log)}
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        return Child(int(self._parent.stdout.readline()), self._parent.stdout)

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.stdout.close()
        self._parent.wait()


class Child:
    """A training process."""

    def __init__(self, number: int, answers) -> None:
        self._number = number
        self._answers = answers

    def wait(self) -> int:
        """Returns the exit code; -9 for a process that was killed."""
        return int(self._answers.readline())

    def running(self) -> bool:
        """Returns whether it has not ended yet."""
        # A child that ended is gone or a zombie.
        try:
            return " Z " not in Path(f"/proc/{self._number}/stat").read_text().split(")")[-1][:3]
        except FileNotFoundError:
            return False

    def kill(self) -> None:
        """Kills it, if it has not ended yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._number, signal.SIGKILL)


def kill_at_a_random_moment(child: Child, checkpoints: Path, chance: random.Random) -> str:
    """Kills a training process, unless it ends before; returns the moment that was chosen."""
    moment = chance.choice(["any", "writing", "writing", "written"])
    if moment == "any":
        _wait(child, chance.uniform(0, 4))
    else:
        step = _newest(checkpoints) + chance.randint(0, 200)
        _wait(child, until=lambda: _newest(checkpoints) >= step)
        if moment == "writing":
            _wait(child, until=lambda: any(checkpoints.glob(".unfinished-*")))
        _wait(child, chance.uniform(0, 0.04))
    child.kill()
    return moment


def _newest(checkpoints: Path) -> int:
    return max(CheckpointDirectory(checkpoints, 1).steps(), default=0)


def _wait(child: Child, seconds: float = 60.0, until=lambda: False) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.running() and not until():
        time.sleep(_POLL_SECONDS)
