"""A store that does not answer is told of once, and once when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hotrow.errors import UnavailableError
from hotrow.serving.updates.store_silence import StoreSilence

WAIT_SECONDS = 10.0


@pytest.fixture
def told() -> list[bool]:
    return []


@pytest.fixture
def silence(told: list[bool]) -> Iterator[StoreSilence]:
    made = StoreSilence(told.append)
    yield made
    made.close()


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_is_told_before_somebody_asks(silence: StoreSilence, told: list[bool]) -> None:
    time.sleep(1.3)
    assert told == []
    with silence.asking():
        pass
    wait_for(lambda: told == [False])


def test_an_answer_that_does_not_come_is_silence_while_it_is_waited_for(
    silence: StoreSilence, told: list[bool]
) -> None:
    answered = threading.Event()

    def wait() -> None:
        with silence.asking():
            assert answered.wait(WAIT_SECONDS)

    with silence.asking():
        pass
    wait_for(lambda: told == [False])
    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: told == [False, True])
    answered.set()
    thread.join()
    wait_for(lambda: told == [False, True, False])


def test_failures_are_silence_until_one_succeeds(silence: StoreSilence, told: list[bool]) -> None:
    began = time.monotonic()
    while not told:
        with pytest.raises(UnavailableError), silence.asking():
            raise UnavailableError("it does not answer")
        assert time.monotonic() - began < WAIT_SECONDS
        time.sleep(0.05)
    assert told == [True]
    assert time.monotonic() - began > 1.0
    with silence.asking():
        pass
    wait_for(lambda: told == [True, False])


def test_what_could_not_be_told_is_told_again() -> None:
    refused: list[bool] = []
    told: list[bool] = []

    def tell(silent: bool) -> None:
        if not refused:
            refused.append(silent)
            raise UnavailableError("hotrow-server is started again")
        told.append(silent)

    silence = StoreSilence(tell)
    with silence.asking():
        pass
    wait_for(lambda: told == [False])
    assert refused == [False]
    silence.close()
