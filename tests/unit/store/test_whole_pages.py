"""Pieces of a table for a store with pages."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow import _native
from hotrow.store.whole_pages import whole_pages

SHARDS = 4


def by_mixed_key(count: int) -> np.ndarray:
    keys = np.random.default_rng(1).integers(-(2**63), 2**63, count)
    _, fine = _native.page_of_keys(keys, 1, 2**62)
    return keys[np.argsort(fine)]


@pytest.mark.parametrize("pages", [1, 2, 7, 100, 10_000])
@pytest.mark.parametrize("pieces", [1, 3, 64])
def test_no_page_lies_in_two_pieces_and_nothing_is_lost(pages: int, pieces: int) -> None:
    keys = by_mixed_key(1000)
    rows = keys.view(np.uint8).reshape(-1, 8)
    split = zip(np.array_split(keys, pieces), np.array_split(rows, pieces), strict=True)
    whole = list(whole_pages(split, SHARDS, pages))
    seen: set[int] = set()
    for part, values in whole:
        assert len(part)
        assert (values == part.view(np.uint8).reshape(-1, 8)).all()
        own = set(_native.page_of_keys(part, SHARDS, pages)[1].tolist())
        assert not own & seen
        seen |= own
    assert sorted(np.concatenate([part for part, _ in whole])) == sorted(keys)


def test_empty_pieces_are_no_trouble() -> None:
    empty = np.empty(0, np.int64), np.empty((0, 8), np.uint8)
    assert list(whole_pages([], SHARDS, 3)) == []
    assert list(whole_pages([empty], SHARDS, 3)) == []
    one = np.array([5]), np.zeros((1, 8), np.uint8)
    ((keys, _),) = whole_pages([empty, one, empty], SHARDS, 3)
    assert keys.tolist() == [5]


def test_a_store_without_pages_takes_pieces_as_they_are() -> None:
    piece = np.array([5]), np.zeros((1, 8), np.uint8)
    assert list(whole_pages([piece, piece], SHARDS, 0)) == [piece, piece]
