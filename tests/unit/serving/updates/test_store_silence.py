"""A store that does not answer is reported once, and once more when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from waiting import wait_until

from hotrow.errors import UnavailableError
from hotrow.serving.updates.store_silence import StoreSilence

WAIT_SECONDS = 10.0


@pytest.fixture
def reported() -> list[bool]:
    return []


@pytest.fixture
def silence(reported: list[bool]) -> Iterator[StoreSilence]:
    made = StoreSilence(reported.append)
    yield made
    made.close()


def test_nothing_is_reported_before_somebody_asks(
    silence: StoreSilence, reported: list[bool]
) -> None:
    time.sleep(1.3)
    assert reported == []
    with silence.asking():
        pass
    wait_until(lambda: reported == [False])


def test_an_answer_that_does_not_come_is_silence_while_it_is_waited_for(
    silence: StoreSilence, reported: list[bool]
) -> None:
    answered = threading.Event()

    def wait() -> None:
        with silence.asking():
            assert answered.wait(WAIT_SECONDS)

    with silence.asking():
        pass
    wait_until(lambda: reported == [False])
    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: reported == [False, True])
    answered.set()
    thread.join()
    wait_until(lambda: reported == [False, True, False])


def test_failures_are_silence_until_one_succeeds(
    silence: StoreSilence, reported: list[bool]
) -> None:
    began = time.monotonic()
    while not reported:
        with pytest.raises(UnavailableError), silence.asking():
            raise UnavailableError("it does not answer")
        assert time.monotonic() - began < WAIT_SECONDS
        time.sleep(0.05)
    assert reported == [True]
    assert time.monotonic() - began > 1.0
    with silence.asking():
        pass
    wait_until(lambda: reported == [True, False])


def test_what_could_not_be_reported_is_reported_again() -> None:
    refused: list[bool] = []
    reported: list[bool] = []

    def report(silent: bool) -> None:
        if not refused:
            refused.append(silent)
            raise UnavailableError("hotrow-server is started again")
        reported.append(silent)

    silence = StoreSilence(report)
    with silence.asking():
        pass
    wait_until(lambda: reported == [False])
    assert refused == [False]
    silence.close()
