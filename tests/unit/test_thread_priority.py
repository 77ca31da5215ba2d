"""Threads that work beside requests have a lower priority."""

from __future__ import annotations

import os
import threading

from hotrow.thread_priority import lower_priority


def test_it_is_that_of_the_thread_and_of_those_that_it_starts() -> None:
    found: list[int] = []

    def note() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def run(target: object) -> None:
        thread = threading.Thread(target=target)  # type: ignore[arg-type]
        thread.start()
        thread.join()

    def lower() -> None:
        lower_priority()
        note()
        run(note)

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    run(lower)
    note()
    assert found == [max(5, before), max(5, before), before]
