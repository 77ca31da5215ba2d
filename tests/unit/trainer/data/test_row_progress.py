"""Progress over rows."""

from __future__ import annotations

import io
import re

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


def test_the_total_and_the_time_left_follow_from_the_share_of_the_file() -> None:
    stream = io.StringIO()
    with RowProgress("read", None, stream, line_seconds=0.0) as progress:
        progress.add(1000, 0.25)
        progress.add(1000, 0.5)
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"1,000 of about 4,000 rows read, [\d,]+ rows/s, 00:00 left", first)
    assert second.startswith("2,000 of about 4,000 rows read, ")


def test_a_bound_holds_where_the_file_has_more_rows() -> None:
    stream = io.StringIO()
    with RowProgress("read", 1500, stream, line_seconds=0.0) as progress:
        progress.add(1000, 0.25)
    assert stream.getvalue().startswith("1,000 of 1,500 rows read, ")


def test_a_bar_shows_the_total_that_the_share_shows() -> None:
    stream = Terminal()
    with RowProgress("read", None, stream) as progress:
        progress.add(1000, 0.25)
    assert "1.00k/4.00k" in stream.getvalue()


def test_nothing_is_shown_when_it_is_not_enabled() -> None:
    for stream in (Terminal(), io.StringIO()):
        with RowProgress("read", None, stream, line_seconds=0.0, enabled=False) as progress:
            progress.add(1000, 0.25)
        assert stream.getvalue() == ""


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
