"""A limited number of threads at work."""

from __future__ import annotations

import threading

from hotrow.serving.lifecycle.limited_threads import LimitedThreads

WAIT_SECONDS = 30.0


class Work:
    """Work that goes on until the test ends it."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ending = threading.Semaphore(0)

    def __call__(self) -> None:
        self.begun.release()
        assert self.ending.acquire(timeout=WAIT_SECONDS)

    def begins(self) -> bool:
        return self.begun.acquire(timeout=WAIT_SECONDS)

    def waits(self) -> bool:
        return not self.begun.acquire(timeout=0.05)


def test_no_more_than_the_limit_work_at_a_time() -> None:
    threads, work = LimitedThreads("test", 2), Work()
    for _ in range(3):
        threads.run(work)
    assert work.begins()
    assert work.begins()
    assert work.waits()
    work.ending.release()
    assert work.begins()
    work.ending.release(2)


def test_0_is_no_limit() -> None:
    threads, work = LimitedThreads("test", 0), Work()
    assert not threads.limited
    for _ in range(20):
        threads.run(work)
    for _ in range(20):
        assert work.begins()
    work.ending.release(20)


def test_another_limit_holds_from_now_on() -> None:
    threads, work = LimitedThreads("test", 1), Work()
    assert threads.limited
    for _ in range(3):
        threads.run(work)
    assert work.begins()
    assert work.waits()
    threads.set_most(2)
    assert work.begins()
    assert work.waits()
    threads.set_most(0)
    assert work.begins()
    work.ending.release(3)
