"""What ends the wait for the next look at a store."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hotrow.serving.updates.next_look import Cause, NextLook
from hotrow.store import open_store


class _Announcing:
    """A store that calls `wake` when the test does, as a thread of Redis's would."""

    def __init__(self) -> None:
        self.wakes: list[Any] = []
        self.ended = 0

    def announcements(self, model: str, wake: Any) -> Any:
        assert model == "m"
        self.wakes.append(wake)
        return self

    def close(self) -> None:
        self.ended += 1


def _bound(store: Any) -> Any:
    return cast(Any, SimpleNamespace(store=store, generation=SimpleNamespace(model="m")))


def test_a_wait_ends_by_time_or_by_an_announcement() -> None:
    store, look = _Announcing(), NextLook()
    assert look.wait(0.0) is Cause.POLL
    for _ in range(2):
        look.subscribe(_bound(store))
    (wake,) = store.wakes
    threading.Timer(0.05, wake).start()
    assert look.wait(60.0) is Cause.PUSH
    assert look.wait(0.0) is Cause.POLL


def test_an_announcement_during_a_look_brings_another_one() -> None:
    store, look = _Announcing(), NextLook()
    look.subscribe(_bound(store))
    (wake,) = store.wakes
    wake()
    wake()
    assert look.wait(60.0) is Cause.PUSH
    wake()  # the look goes on
    assert look.wait(60.0) is Cause.PUSH
    assert look.wait(0.0) is Cause.POLL


def test_close_ends_all_waits() -> None:
    store, look = _Announcing(), NextLook()
    look.unsubscribe()  # there is nothing to end
    look.subscribe(_bound(store))
    assert not look.is_closed
    threading.Timer(0.05, look.close).start()
    assert look.wait(60.0) is None
    assert look.wait(60.0) is None
    assert look.is_closed
    look.unsubscribe()
    assert store.ended == 1


def test_an_embedded_store_is_polled(tmp_path: Path) -> None:
    store, look = open_store(f"file://{tmp_path}", create=True), NextLook()
    try:
        look.subscribe(_bound(store))
        store.announce("m")
        assert look.wait(0.05) is Cause.POLL
        look.unsubscribe()
    finally:
        store.close()
