"""A bound of the bytes of all request bodies together that are being read or answered."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class BodiesTooLongError(Exception):
    """The bodies of all requests under way have more bytes than the server takes."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"The bodies of all requests under way would have more than {most_bytes} bytes; try "
            "again later, or start the server with a larger --rest_api_max_total_body_bytes"
        )


class BodyMemory:
    """Counts the bytes of bodies; safe for several threads.

    Args:
        most_bytes: of all bodies together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._bytes = 0

    @contextlib.contextmanager
    def body(self) -> Iterator[HeldBody]:
        """Surrounds the time that a body is held."""
        held = HeldBody(self)
        try:
            yield held
        finally:
            self._add(-held.length)

    def check(self, length: int) -> None:
        """Refuses a body that has not begun to arrive and would not fit now.

        Nothing is reserved for it: a client that announces much and sends little blocks no others.

        Raises:
            BodiesTooLongError: there is no room.
        """
        with self._lock:
            self._refuse_above(self._bytes + length)

    def _add(self, count: int) -> None:
        with self._lock:
            if count > 0:
                self._refuse_above(self._bytes + count)
            self._bytes += count

    def _refuse_above(self, total: int) -> None:
        if total > self._most_bytes:
            raise BodiesTooLongError(self._most_bytes)


class HeldBody:
    """The bytes of one body.

    Attributes:
        length: how many of them are counted.
    """

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.length = 0

    def grow(self, count: int) -> None:
        """Counts more bytes.

        Raises:
            BodiesTooLongError: there is no room for them.
        """
        self._memory._add(count)
        self.length += count

    def check(self, length: int) -> None:
        """Refuses an announced length, as `BodyMemory.check` does."""
        self._memory.check(length)
