"""Progress over rows."""

from __future__ import annotations

import io

from hotrow.trainer.data.row_progress import RowProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_appear_when_it_is_no_terminal() -> None:
    stream = io.StringIO()
    with RowProgress("read", 3000, stream, line_seconds=0.0) as progress:
        progress.add(1000)
        progress.add(2000)
    first, second = stream.getvalue().splitlines()
    assert first.startswith("1,000 of 3,000 rows read, ")
    assert second.startswith("3,000 of 3,000 rows read, ")


def test_lines_wait_for_their_time() -> None:
    stream = io.StringIO()
    with RowProgress("read", None, stream, line_seconds=3600.0) as progress:
        progress.add(1000)
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_bar() -> None:
    stream = Terminal()
    with RowProgress("read", 2000, stream) as progress:
        progress.add(2000)
    assert "2.00k/2.00k" in stream.getvalue()
    assert "rows read" not in stream.getvalue()


def test_a_passing_bar_leaves_nothing_after_a_short_time() -> None:
    stream = Terminal()
    with RowProgress("read", 2000, stream, passing=True) as progress:
        progress.add(2000)
    assert stream.getvalue().strip() == ""
