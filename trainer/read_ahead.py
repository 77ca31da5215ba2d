"""Reads the next items of an iterator in a thread while the current one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_POLL_SECONDS = 0.1


def read_ahead(items: Callable[[], Iterator[Item]], depth: int = 2) -> Generator[Item, None, None]:
    """Yields the items of `items()` in order; reads up to `depth` of them ahead.

    One other thread makes and advances the iterator. It ends when the items end or when this
    generator is closed. Close it (`contextlib.closing`) where a loop may leave it early.

    Args:
        items: makes the iterator.
        depth: largest number of waiting items.

    Raises:
        Whatever `items` raises, after the items before it.
    """
    ready: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(depth)
    closed = threading.Event()

    def offer(more: bool, value: Item | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                ready.put((more, value), timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            for item in items():
                if not offer(True, item):
                    return
        except BaseException as err:
            offer(False, err)
        else:
            offer(False, None)

    thread = threading.Thread(target=produce, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            more, value = ready.get()
            if not more:
                if isinstance(value, BaseException):
                    raise value
                return
            yield value  # type: ignore[misc]
    finally:
        closed.set()
        thread.join()
