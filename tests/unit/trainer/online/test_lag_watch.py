"""The lag is asked for beside training: a source that does not answer stops nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from waiting import wait_until

from hotrow.errors import UnavailableError
from hotrow.trainer.online import lag_watch
from hotrow.trainer.online.lag_watch import LagWatch
from hotrow.trainer.online.merged import MergedSource
from hotrow.trainer.online.source import Lag, Position


class OnlyLag(MergedSource):
    """A source that knows its lag and nothing else."""

    def __init__(self, answer: Callable[[Position], Lag]) -> None:
        self.answer = answer

    def lag(self, position: Position) -> Lag:
        return self.answer(position)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_watch, "_LOOK_SECONDS", 0.0)


def test_it_does_not_wait_for_an_answer() -> None:
    goes_on = threading.Event()

    def answer(position: Position) -> Lag:
        goes_on.wait(30.0)
        return Lag(events=position["at"])

    watch = LagWatch(OnlyLag(answer))
    assert watch.lag({"at": 5}) == Lag()
    assert watch.lag({"at": 3}) == Lag()
    goes_on.set()
    wait_until(lambda: watch.lag({"at": 2}).events == 5)
    wait_until(lambda: watch.lag({"at": 2}).events == 2)
    watch.close()


def test_why_a_source_does_not_answer_is_raised_until_it_does() -> None:
    answers = [Lag(events=7)]

    def answer(position: Position) -> Lag:
        if answers:
            return answers.pop()
        raise UnavailableError("away")

    watch = LagWatch(OnlyLag(answer))

    def trouble() -> str:
        try:
            watch.lag({})
        except UnavailableError as err:
            return str(err)
        return ""

    wait_until(lambda: watch.lag({}).events == 7)
    wait_until(lambda: trouble() == "away")
    answers += [Lag(events=8)] * 1000
    wait_until(lambda: trouble() == "")
    assert watch.lag({}).events == 8
    watch.close()
