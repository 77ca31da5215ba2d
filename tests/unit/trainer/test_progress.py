"""Progress of a training run: steps of how many, and the time left."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from hotrow.config import parse_config
from hotrow.trainer.expected_steps import expected_steps
from hotrow.trainer.metrics import Quality
from hotrow.trainer.progress import Progress

QUALITY = Quality(rows=100, auc=0.7, logloss=0.5, calibration=1.0, label_mean=0.2)


def test_a_line_shows_the_total_and_the_time_left() -> None:
    stream = io.StringIO()
    progress = Progress(10, stream, 50)
    progress.report_training(30, 1, QUALITY, 1000.0)
    progress.report_training(50, 1, QUALITY, 1000.0)
    first, last = stream.getvalue().splitlines()
    assert re.match(r"step 30 of about 50, \d\d:\d\d left  epoch 2  1,000 samples/s  auc", first)
    assert last.startswith("step 50  epoch 2")


def test_a_bar_has_the_total() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    progress = Progress(10, stream, 50)
    progress.close()
    assert "10/50" in stream.getvalue()


def test_a_disk_that_is_full_refuses_lines_and_does_not_end_the_run() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        stream = io.TextIOWrapper(full, write_through=True)
        with pytest.raises(OSError, match="No space left"):
            stream.write("a line")
        progress = Progress(10, stream, 50)
        progress.say("a line")
        progress.report_training(30, 1, QUALITY, 1000.0)
        progress.close()


def say_on_a_terminal(line: str) -> str:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    progress = Progress(0, stream, 50)
    progress.say(line)
    progress.close()
    return stream.getvalue()


def test_warnings_have_a_color_on_a_terminal_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[33mwarning:\x1b[0m rows stay" in say_on_a_terminal("warning: rows stay")
    assert "\x1b[33m" not in say_on_a_terminal("no warning: rows move")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "warning: rows stay" in say_on_a_terminal("warning: rows stay")


@pytest.mark.parametrize(("bound", "expected"), [(None, 8), (5, 5)])
def test_steps_follow_from_rows_epochs_and_the_bound(
    tmp_path: Path, bound: int | None, expected: int
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n" * 31)
    config = parse_config(
        {
            "name": "steps",
            "data": {"format": "csv", "train": [str(path)], "columns": ["x", "label"],
                     "batch_size": 8},
            "features": {"dense": {"columns": ["x"]}},
            "model": {"arch": "wide_deep"},
            "train": {"epochs": 2, "max_steps": bound},
        }
    )  # fmt: skip
    assert expected_steps(config) == expected
