"""A signal becomes a request once; the second one acts as ever."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hotrow.trainer.stop_request import StopRequest


@pytest.fixture(autouse=True)
def interruptible():
    """Python's own handler: a shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted(number):
    with StopRequest() as stop:
        assert stop.number is None
        os.kill(os.getpid(), number)
        assert stop.number == number


def test_the_second_interruption_interrupts():
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_of_before_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_outside_of_the_main_thread_nothing_is_changed():
    before = signal.getsignal(signal.SIGINT)
    during = []

    def run():
        with StopRequest() as stop:
            during.append((signal.getsignal(signal.SIGINT), stop.number))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert during == [(before, None)]
