"""Where the rows of a generation's table lie: names of keys, slots, and how many pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hotrow import _native
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


def base64_digits(number: int) -> bytes:
    """Returns a number as names of keys have it, without leading zeros."""
    digits = b""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit : digit + 1] + digits
    return digits


def mean_rows_of_page(record_bytes: int) -> float:
    """Returns how many records of so many bytes a page should hold on average, at least 1.

    A page costs some 70 bytes whatever is in it, so small records want many in one; but a lookup
    of one row reads its whole page, and the larger a page is, the further apart are the sizes of
    jemalloc's classes. `benchmarks/redis_reads.py` finds 6 best at 80 bytes and 3.5 at 272; the
    power through both serves all sizes.
    """
    return max(1.0, 6.0 * math.pow(80 / record_bytes, 0.44))


def pages_of(record_bytes: int, rows: int, shards: int) -> int:
    """Returns P, the pages of a table in each shard, at least 1."""
    return max(1, math.ceil(rows / (shards * mean_rows_of_page(record_bytes))))


@dataclass(frozen=True)
class PagedTable:
    """The pages of a table of a generation.

    Attributes:
        generation: that it belongs to.
        number: of the table in it.
    """

    generation: Generation
    number: int

    @property
    def pages(self) -> int:
        """Of each shard, P."""
        return self.generation.tables[self.number].pages

    @property
    def row_bytes(self) -> int:
        """B."""
        return self.generation.tables[self.number].row_bytes

    @property
    def record_bytes(self) -> int:
        """Of key, version and row."""
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
        """Yields (first page, names) of a shard's pages, so many at a time."""
        for first in range(0, self.pages, pages):
            yield first, self.names(shard, first, pages)


def markers_of(generation: Generation) -> tuple[list[bytes], list[int]]:
    """Returns the names of the markers, and the slots, of all shards."""
    return _native.store_names(generation.shards, generation.number)
