"""Exit codes of `platform status`."""

from __future__ import annotations

import pytest

from hotrow.cli.status_report import Problem, Report, counted

CLOSED = Problem("trainer", "its gate is closed")
SILENT = Problem("store", "it does not answer", unanswered=True)


@pytest.mark.parametrize(
    ("problems", "code"),
    [([], 0), ([CLOSED], 3), ([SILENT], 1), ([CLOSED, SILENT], 1)],
    ids=["all is well", "closed", "unanswered", "both"],
)
def test_a_part_that_does_not_answer_outranks_what_is_wrong(
    problems: list[Problem], code: int
) -> None:
    report = Report(0.0, problems=problems)
    assert report.exit_code == report.as_dict()["exit_code"] == code


def test_numbers_have_the_right_plural() -> None:
    assert [counted(n, "cut") for n in (0, 1, 2000)] == ["0 cuts", "1 cut", "2,000 cuts"]
