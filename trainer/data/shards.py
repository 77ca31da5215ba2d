"""Divides data files among ranks: row groups of Parquet, byte ranges of text, compressed files.

W ranks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hotrow.trainer.data.lines import text_size
from hotrow.trainer.data.parquet import is_parquet, row_group_rows
from hotrow.trainer.data.piece import Piece

TEXT_BYTES = 64 << 20
"""Bytes of a piece of text."""
PARQUET_ROWS = 1 << 18
"""Least rows of a piece of Parquet: each piece reads the file's footer again."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The pieces that one rank reads.

    Attributes:
        number: of the rank.
        pieces: in the order of the files.
    """

    number: int
    pieces: tuple[Piece, ...]


class _Range(NamedTuple):
    """A piece before it is divided: `kind` says what its size counts."""

    path: Path
    kind: str
    start: int
    stop: int


def shards_of(paths: Sequence[Path], count: int) -> list[Shard]:
    """Divides files into `count` shards; each row is in one of them.

    Pieces go, in the order of the files, to the shard that has the least. So the shards advance
    through the files side by side. The last pieces are cut, so that shards are equal in rows of
    Parquet and in bytes of text. A compressed text file has no place to cut: it is one piece.

    Args:
        paths: the data files, in order.
        count: W, at least 1.

    Raises:
        NotFoundError, DataError: a file is missing or cannot be read.
    """
    ranges = [one for path in paths for one in _ranges_of(path)]
    totals: Counter[str] = Counter()
    for one in ranges:
        totals[one.kind] += one.stop - one.start
    loads = {kind: [0] * count for kind in totals}
    shares = {
        kind: [(total + count - 1 - number) // count for number in range(count)]
        for kind, total in totals.items()
    }
    pieces: list[list[Piece]] = [[] for _ in range(count)]
    for path, kind, start, stop in ranges:
        load, share, whole = loads[kind], shares[kind], kind == _COMPRESSED
        while start < stop:
            lacking = [i for i in range(count) if whole or load[i] < share[i]]
            number = min(lacking, key=load.__getitem__)  # the first of several
            end = stop if whole else min(stop, start + share[number] - load[number])
            pieces[number].append(Piece(path, None if whole else (start, end)))
            load[number] += end - start
            start = end
    return [Shard(number, tuple(own)) for number, own in enumerate(pieces)]


def as_text(shards: Sequence[Shard]) -> str:
    """Returns the places of the pieces without the paths, which may differ between machines."""
    return json.dumps([[(p.path.name, p.span) for p in shard.pieces] for shard in shards])


_ROWS, _BYTES, _COMPRESSED = "rows of Parquet", "bytes of text", "compressed bytes"


def _ranges_of(path: Path) -> Iterator[_Range]:
    if is_parquet(path):
        start = stop = 0
        for rows in row_group_rows(path):
            stop += rows
            if stop - start >= PARQUET_ROWS:
                yield _Range(path, _ROWS, start, stop)
                start = stop
        yield _Range(path, _ROWS, start, stop)
        return
    size, is_compressed = text_size(path)
    kind = _COMPRESSED if is_compressed else _BYTES
    step = max(size, 1) if is_compressed else TEXT_BYTES
    for start in range(0, size, step):
        yield _Range(path, kind, start, min(size, start + step))
