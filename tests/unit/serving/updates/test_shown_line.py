"""Cuts that come each second fill no log."""

from __future__ import annotations

import pytest

from hotrow.serving.updates import shown_line
from hotrow.serving.updates.shown_line import ShownLine
from hotrow.serving.updates.wanted_cuts import WantedCuts


def _wanted(version: int) -> WantedCuts:
    return WantedCuts(version, 100 + version, None, ())


def test_lines_that_come_soon_after_another_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = ShownLine()
    assert line.of(_wanted(1)) == "shows step 101 (cut 0000000000000001, 0 rows)"
    assert line.of(_wanted(2)) == line.of(_wanted(3)) == ""
    monkeypatch.setattr(shown_line, "_PAUSE_SECONDS", 0.0)
    line._due = 0.0  # as ten seconds later
    assert line.of(_wanted(4)) == (
        "shows step 104 (cut 0000000000000004, 0 rows); 2 cuts before it are in no line"
    )
    assert line.of(_wanted(5)) == "shows step 105 (cut 0000000000000005, 0 rows)"
