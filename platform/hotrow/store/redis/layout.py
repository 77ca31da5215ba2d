"""The layout of a generation's table in Redis: names of keys, slots, number of pages."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from hotrow import _native
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_PAIRS = [bytes(pair) for pair in itertools.product(_DIGITS, repeat=2)]


def base64_digits(number: int) -> bytes:
    """Returns a number in the form of key names, without leading zeros."""
    digits = b""
    while number >= len(_PAIRS):
        number, pair = divmod(number, len(_PAIRS))
        digits = _PAIRS[pair] + digits
    first = _PAIRS[number] if number >= len(_DIGITS) else _DIGITS[number : number + 1]
    return first + digits


def mean_rows_of_page(record_bytes: int) -> float:
    """Returns how many records of a size a page should hold on average, at least 1.

    A page costs about 70 bytes besides its contents, so small records need many in a page. But a
    lookup of one row reads its whole page, and the classes of jemalloc are further apart for larger
    pages. `benchmarks/redis_reads.py` finds 6 best at 80 bytes and 3.5 at 272; the power law
    through both gives the other sizes.
    """
    return max(1.0, 6.0 * math.pow(80 / record_bytes, 0.44))


def pages_of(record_bytes: int, rows: int, shards: int) -> int:
    """Returns P, the pages of a table in each shard, at least 1."""
    return max(1, math.ceil(rows / (shards * mean_rows_of_page(record_bytes))))


@dataclass(frozen=True)
class PagedTable:
    """The pages of a table of a generation.

    Attributes:
        generation: the generation.
        number: the table's number in it.
    """

    generation: Generation
    number: int

    @property
    def pages(self) -> int:
        """Pages in each shard, P."""
        return self.generation.tables[self.number].pages

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row, B."""
        return self.generation.tables[self.number].row_bytes

    @property
    def record_bytes(self) -> int:
        """Bytes of key, version and row."""
        return RECORD_HEAD_BYTES + self.row_bytes

    def name(self, marker: bytes, page: int) -> bytes:
        """Returns the name of a page of the shard with this marker."""
        high, low = divmod(self.number, len(_DIGITS))
        return b"%s:%c%c%s" % (marker, _DIGITS[high], _DIGITS[low], base64_digits(page))

    def names(self, shard: int, first: int, count: int) -> list[bytes]:
        """Returns the names of pages of a shard."""
        owner = self.generation
        place = owner.shards, owner.number, self.number, self.pages, shard
        return _native.page_names(*place, first, min(count, self.pages - first))

    def pieces(self, shard: int, pages: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yields (first page, names) of a shard's pages, at most `pages` at a time."""
        for first in range(0, self.pages, pages):
            yield first, self.names(shard, first, pages)


def markers_of(generation: Generation) -> tuple[list[bytes], list[int]]:
    """Returns the names of the markers, and the slots, of all shards; not to be changed."""
    return names_of_markers(generation.shards, generation.number)


@functools.lru_cache(maxsize=64)
def names_of_markers(shards: int, number: int) -> tuple[list[bytes], list[int]]:
    """Returns the same for a generation of so many shards with this number."""
    return _native.store_names(shards, number)
