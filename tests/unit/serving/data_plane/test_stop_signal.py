"""Tests for the signal that ends a server."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Sends the signal before each bytecode that `wait` runs, one after the other.
_PROGRAM = """
import os, signal, sys

from hotrow.serving.data_plane.stop_signal import StopSignal


def arrives_at(bytecode):
    left = bytecode

    def trace(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            if left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            left -= 1
        return trace

    stop = StopSignal(lambda number: None)
    sys.settrace(trace)
    stop.wait(0.01)
    sys.settrace(None)
    sent = left < 0
    assert stop.is_set() == stop.wait(0) == sent, bytecode
    return sent


bytecode = 0
while arrives_at(bytecode):
    bytecode += 1
print(bytecode)
"""


def _run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_a_signal_at_any_moment_of_the_wait_ends_it() -> None:
    assert int(_run(_PROGRAM)) > 10


def test_a_signal_that_interrupts_no_call_of_the_main_thread_ends_the_wait() -> None:
    """It arrives in another thread, as one just before the call would."""
    program = """
import signal, threading
from hotrow.serving.data_plane.stop_signal import StopSignal

stop = StopSignal(lambda number: None)


def arrive():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


threading.Timer(0.2, arrive).start()
assert stop.wait()
print("done")
"""
    assert _run(program) == "done\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_it_waits_for_both_signals_and_calls_with_the_number(name: str) -> None:
    program = f"""
import os, signal, threading
from hotrow.serving.data_plane.stop_signal import StopSignal

came = []
stop = StopSignal(came.append)
assert not stop.is_set()
assert not stop.wait(0.01)
threading.Timer(0.1, os.kill, [os.getpid(), signal.{name}]).start()
assert stop.wait()
assert stop.wait(0)
assert came == [signal.{name}]
print("done")
"""
    assert _run(program) == "done\n"
