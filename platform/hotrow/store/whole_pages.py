"""Regroups the pieces of a table so that no page of the store is in two of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hotrow import _native
from hotrow.store.row_store import Keys, Rows


def whole_pages(
    pieces: Iterable[tuple[Keys, Rows]], shards: int, pages: int
) -> Iterator[tuple[Keys, Rows]]:
    """Yields the same rows, with all rows of a page in one piece.

    A page at the end of a range of mixed keys continues in the next range, so its rows wait for
    that one: at most one page of every shard, some thousand rows.

    Args:
        pieces: keys int64 [N] and rows uint8 [N, B] of ranges of mixed keys, ascending.
        shards: V of the generation.
        pages: P of the table; 0: the store has no pages, and pieces do not change.
    """
    if pages == 0:
        yield from pieces
        return
    kept: tuple[Keys, Rows] | None = None
    for keys, rows in pieces:
        if kept is not None:
            keys, rows = np.concatenate([kept[0], keys]), np.concatenate([kept[1], rows])
        if not len(keys):
            continue
        _, page = _native.page_of_keys(keys, shards, pages)
        last = page == page.max()
        kept = keys[last], rows[last]
        if not last.all():
            yield keys[~last], rows[~last]
    if kept is not None:
        yield kept
