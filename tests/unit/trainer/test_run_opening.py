"""What is refused and warned about before a run writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotrow.config import RunConfig, parse_config
from hotrow.trainer.data import DataError, positive_label
from hotrow.trainer.loop import train
from hotrow.trainer.run_opening import checked_data


def config_of(folder: Path, **data: Any) -> RunConfig:
    return parse_config(
        {
            "name": "m",
            "data": {
                "format": "csv",
                "train": [str(folder / "a.csv"), str(folder / "b.csv")],
                "batch_size": 8,
                **data,
            },
            "features": {"sparse": {"columns": ["key"], "dim": 2}},
            "model": {"arch": "logistic"},
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of 20 rows; the last 5 rows have another label."""
    (tmp_path / "a.csv").write_text("key,label\n" + "x,no\n" * 20)
    (tmp_path / "b.csv").write_text("key,label\n" + "x,no\n" * 15 + "y,yes\n" * 5)
    return tmp_path


def test_a_wrong_positive_label_is_refused_before_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match=r"no label is 'YES' in 40 rows; .*'no' \(35\), 'yes'"):
        train(config_of(folder, positive="YES"), folder / "run")
    assert not (folder / "run").exists()
    assert not capsys.readouterr().err


def test_validation_files_need_a_positive_label_too(folder: Path) -> None:
    valid = str(folder / "a.csv")
    with pytest.raises(DataError, match=r"a\.csv: no label is 'yes' in 20 rows"):
        checked_data(config_of(folder, positive="yes", valid=valid), print)


@pytest.mark.parametrize("positive", ["yes", "YES"])
def test_many_rows_without_a_positive_label_are_one_early_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, positive: str
) -> None:
    monkeypatch.setattr(positive_label, "CHECKED_ROWS", 30)
    said: list[str] = []
    checked_data(config_of(folder, positive=positive), said.append)
    (line,) = said
    assert line.startswith(f"data.positive: no label is '{positive}' in the first 30 rows; ")
    assert line.endswith("; seen: 'no' (30)")


def test_a_positive_label_in_the_first_rows_says_nothing(folder: Path) -> None:
    checked_data(config_of(folder, positive="yes"), pytest.fail)
    checked_data(config_of(folder, positive="no"), pytest.fail)
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text("key,label\nx,1\n")
    checked_data(config_of(folder), pytest.fail)


def test_only_the_most_frequent_labels_are_shown(folder: Path) -> None:
    lines = [f"x,v{i % 9}" for i in range(21)]
    (folder / "a.csv").write_text("key,label\n" + "\n".join(lines) + "\n")
    (folder / "b.csv").write_text("")
    with pytest.raises(DataError, match=r"seen: 'v0' \(3\), 'v1' \(3\), .* and 4 more$"):
        checked_data(config_of(folder, positive="1"), print)
