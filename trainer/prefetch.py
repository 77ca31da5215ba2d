"""Reads batches before training needs them, and passes the keys of the next windows to tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(
    items: Iterable[Item], window: int, hand_over: Callable[[list[Item]], None]
) -> Iterator[Item]:
    """Yields the items in order, and hands over each window of them before it is reached.

    Window w has the items [w * window, (w + 1) * window). Windows 0 and 1 are handed over before
    the first item is yielded, window w + 1 before the first item of window w. So 2 * window items
    are in memory, and the first item is yielded once these are read.

    Args:
        items: in order.
        window: items of a window; 0: hand over nothing and read nothing in advance.
        hand_over: called with the items of a window; the last may have fewer.

    Raises:
        Whatever `items` raises, after the items before it.
    """
    if window == 0:
        yield from items
        return
    waiting: deque[Item] = deque()
    window_items: list[Item] = []
    yielded = 0
    failure: Exception | None = None
    source = iter(items)
    while True:
        try:
            item = next(source)
        except StopIteration:
            break
        except Exception as err:
            failure = err
            break
        waiting.append(item)
        window_items.append(item)
        if len(window_items) == window:
            hand_over(window_items)
            window_items = []
        if len(waiting) == 2 * window:
            yield waiting.popleft()
            yielded += 1
    while waiting:
        if window_items and yielded % window == 0:  # also before the last window
            hand_over(window_items)
            window_items = []
        yield waiting.popleft()
        yielded += 1
    if failure is not None:
        raise failure
