"""A plan as people read it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from unit.ops.planner.test_choose import planned
from unit.ops.planner.workloads import multi_hot, one_hot

from hotrow.ops.planner import describe_plan
from hotrow.ops.planner.plan_text import bytes_text


def test_a_plan_has_a_line_a_table_and_totals():
    rng = np.random.default_rng(0)
    tables = {"ids": (16, one_hot(rng, 256)), "tags": (2, multi_hot(rng, 256))}
    lines = describe_plan(planned(tables, forced={"tags": "table"})).splitlines()
    assert lines[0] == "sharding of 2 tables over 4 ranks, batches of 256; measured on 0, 256 rows"
    assert lines[2].split()[:2] == ["table", "D"]
    assert lines[2].split()[-2:] == ["scheme", "why"]
    ids, tags = lines[3], lines[4]
    assert ids.startswith("ids  ")
    assert " row " in ids
    assert re.search(r" table@\d ", tags)
    assert " - " in tags  # two columns for four ranks
    assert tags.endswith("  forced")
    assert lines[5].startswith("together: ")
    assert len(lines) == 6
    assert max(map(len, lines)) < 160


def test_a_plan_shows_the_memory_that_a_rank_has_for_it():
    tables = {"ids": (16, one_hot(np.random.default_rng(0), 256))}
    text = describe_plan(planned(tables, memory_budget_bytes=1e9))
    assert text.splitlines()[-1].endswith(" at the fullest rank, which has room for 1.00 GB")
    assert "room" not in describe_plan(planned(tables))


def test_a_plan_that_does_not_fit_says_so_and_what_to_do():
    tables = {"ids": (16, one_hot(np.random.default_rng(0), 256))}
    last = describe_plan(planned(tables, memory_budget_bytes=10)).splitlines()[-1]
    assert last.startswith(
        "the rows do not fit: about 4.56 kB at the fullest rank, which has room "
    )
    assert last.endswith(
        "10 B; use more ranks, machines with more memory, cache.disk or a smaller dim"
    )
    forced = describe_plan(planned(tables, memory_budget_bytes=10, forced={"ids": "table"}))
    assert "; leave the sharding of ids to auto, or use more " in forced.splitlines()[-1]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (9_996, "10.0 kB"),
        (12_345, "12.3 kB"),
        (123_456, "123 kB"),
        (1.5e9, "1.50 GB"),
        (2.5e15, "2500 TB"),
    ],
)
def test_bytes_have_three_digits_and_a_unit(amount, text):
    assert bytes_text(amount) == text
