"""The next item of an iterator, fetched before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from hotrow.errors import HotrowError

Item = TypeVar("Item")


class NextItem(Generic[Item]):
    """Holds the next item of an iterator.

    Attributes:
        item: the next one; None when there is none.
        failure: why there is none, if that is an error.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        """Fetches nothing yet."""
        self.item: Item | None = None
        self.failure: HotrowError | None = None
        self._items = iter(items)

    def fetch(self) -> None:
        """Replaces `item` by the one after it.

        Raises:
            Whatever the iterator raises.
        """
        self.item = None
        self.item = next(self._items, None)

    def try_to_fetch(self) -> None:
        """The same, but notes an error in `failure`."""
        try:
            self.fetch()
        except HotrowError as err:
            self.failure = err
