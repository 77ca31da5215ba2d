"""Processes that tests start end with the tests, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from children import start_child
from waiting import wait_until

STARTS_ONE = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from children import start_child
print(start_child(["sleep", "600"]).pid, flush=True)
threading.Event().wait()
"""


def runs(process: int) -> bool:
    """Returns whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_ends_with_a_process_that_is_killed(pytestconfig) -> None:
    tests = str(pytestconfig.rootpath / "tests")
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE, tests], stdout=subprocess.PIPE, text=True
    )
    with parent:
        child = int(parent.stdout.readline())
        # The kernel knows whom to follow before setpriv becomes the command.
        comm = Path(f"/proc/{child}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", comm.read_text)
        parent.kill()
        wait_until(lambda: not runs(child), lambda: child)


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    started = []
    thread = threading.Thread(target=lambda: started.append(start_child(["cat"], stdin=-1)))
    thread.start()
    thread.join()
    (child,) = started
    with child:
        os.kill(child.pid, 0)
        child.stdin.close()
        assert child.wait(10) == 0, signal.strsignal(-child.returncode)
