"""The next two items of an iterator, fetched before they are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from hotrow.errors import HotrowError

Item = TypeVar("Item")


class NextTwo(Generic[Item]):
    """Holds the next two items of an iterator.

    Attributes:
        item: the next item; None when there is none.
        failure: the error because of which there is no next item, if any.
        after: the item after `item`; None when there is none, or when fetching it failed. Which of
            the two becomes clear with the next `fetch`.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        """Fetches the first two."""
        self.item: Item | None = None
        self.failure: HotrowError | None = None
        self.after: Item | None = None
        self._failure_after: HotrowError | None = None
        self._over = False
        self._items = iter(items)
        self.fetch()
        self.fetch()

    def fetch(self) -> None:
        """Advances by one item."""
        self.item, self.failure = self.after, self._failure_after
        self.after = self._failure_after = None
        if self._over:
            return
        try:
            self.after = next(self._items, None)
        except HotrowError as err:
            self._failure_after = err
        self._over = self.after is None
