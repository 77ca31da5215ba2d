"""What `platform status` finds wrong with a store, and how far a reader is behind."""

from __future__ import annotations

from typing import Any

import pytest

from hotrow.cli.status_report import Bounds
from hotrow.cli.status_store import behind, store_problems

CUTS = [{"cut": f"{n:016x}", "age_seconds": age} for n, age in ((9, 0.5), (8, 2.5), (7, None))]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [(9, (0, 0.0)), (10, (0, 0.0)), (8, (1, 0.5)), (7, (2, 2.5)), (0, (3, None))],
    ids=["newest", "newer", "one behind", "two behind", "as exported"],
)
def test_a_reader_is_behind_since_the_oldest_cut_that_it_lacks(
    shown: int, expected: tuple[int, float | None]
) -> None:
    assert behind(shown, CUTS) == expected
    assert behind(0, []) == (0, 0.0)


def part(**changes: Any) -> dict[str, Any]:
    return {"model": "shop", "live": "g", "nodes": [], "generations": [], **changes}


def node(used: int, limit: int | None) -> dict[str, Any]:
    return {"address": "a:6379", "used_bytes": used, "limit_bytes": limit}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (part(), []),
        (part(live=None), ["no version of shop is live; export one"]),
        (part(nodes=[node(90, 100), node(1000, None)]), []),
        (
            part(nodes=[node(91, 100)]),
            ["a:6379 uses 91% of its maxmemory; give it more, or add nodes"],
        ),
        (
            part(generations=[{"generation": "g", "problem": "cut/g/1 is damaged"}]),
            ["g: cut/g/1 is damaged"],
        ),
    ],
    ids=["well", "nothing is live", "enough memory", "nearly full", "damaged"],
)
def test_problems_of_a_store_are_named(found: dict[str, Any], expected: list[str]) -> None:
    found["generations"] = [{"problem": None, **g} for g in found["generations"]]
    assert [problem.text for problem in store_problems(found, Bounds())] == expected
