"""`platform predict` and `platform evaluate` against real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotrow.cli.main import main

CSV = "word,number,count,label\na,1.5,2,1\n,,3,0\nabc,-1,4,yes\n"


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(CSV.replace("yes", "1"))
    return path


def _platform(command: str, server: Any, data: Path, *more: str) -> int:
    return main(
        [
            *(command, "--server", f"127.0.0.1:{server.port}", "--model", server.model),
            *("--data", str(data), *more),
        ]
    )


def test_predict_prints_row_number_and_score(
    zoo: Any, csv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "scores.json"
    arguments = ("--signature", "columns", "--batch-size", "2", "--json", str(report))
    assert _platform("predict", zoo, csv_file, *arguments) == 0
    assert capsys.readouterr().out == "1\t0.5625\n2\t0.375\n3\t0.75\n"
    assert json.loads(report.read_text()) == {
        "model": "zoo",
        "version": 1,
        "default_rows": 0,
        "stale_rows": 0,
        "data": str(csv_file),
        "rows": 3,
        "scores": [0.5625, 0.375, 0.75],
    }


def test_predict_sends_as_many_rows_as_asked_for(
    zoo: Any, csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--signature", "columns", "--limit", "1", "--output", "total")
    assert _platform("predict", zoo, csv_file, *arguments) == 0
    assert capsys.readouterr().out == "1\t4.5\n"


def test_predict_sends_any_number_of_weighted_ids_a_row(
    zoo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.libsvm"
    rows.write_text("1 3:0.5 4:2\n0\n0 7:1\n")
    assert _platform("predict", zoo, rows, "--signature", "bag") == 0
    assert capsys.readouterr().out == "1\t9.5\n2\t0.0\n3\t7.0\n"


def test_a_column_of_one_value_a_row_may_feed_a_matrix_of_one_column(
    half_plus_two: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("x\n2\n5\n")
    assert _platform("predict", half_plus_two, rows) == 0
    assert capsys.readouterr().out == "1\t3.0\n2\t4.5\n"


def test_evaluate_measures_what_the_labels_say(
    zoo: Any, csv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    arguments = ("--signature", "columns", "--json", str(report))
    assert _platform("evaluate", zoo, csv_file, *arguments) == 0
    printed = capsys.readouterr().out
    assert "AUC          1.000000" in printed
    assert "calibration  0.843750" in printed
    metrics = json.loads(report.read_text())
    assert metrics["rows"] == 3
    assert metrics["auc"] == 1.0
    assert metrics["logloss"] == pytest.approx(0.444350, abs=1e-5)


def test_evaluate_reads_labels_that_are_words(
    zoo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    arguments = ("--signature", "columns", "--positive", "yes")
    assert _platform("evaluate", zoo, path, *arguments) == 0
    assert "label mean   0.333333" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_malformed_lines_are_left_out_and_counted_where_this_is_asked_for(
    zoo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    arguments = ("--signature", "columns", "--on-malformed")
    assert _platform(command, zoo, path, *arguments, "skip") == 0
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("left out: 1 malformed line, the first is line 4: label is 'yes', not 0")
    assert "(--positive)" in line
    assert {"evaluate": "rows         2 (", "predict": "2\t0.375\n"}[command] in printed.out
    assert _platform(command, zoo, path, *arguments, "fail") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["--model", "nope"], 1, "does not serve model 'nope'", id="unknown model"),
        pytest.param(
            ["--server", "127.0.0.1:1"], 1, "no server answers at 127.0.0.1:1", id="no server"
        ),
        pytest.param(
            ["--signature", "colums"],
            2,
            "model 'zoo' has no signature 'colums' (did you mean 'columns'?)",
            id="unknown signature",
        ),
        pytest.param(
            ["--output", "scor"],
            2,
            "the signature has no output 'scor' (did you mean 'scores'?)",
            id="unknown output",
        ),
        pytest.param(
            ["--signature", "add", "--output", "sum"],
            2,
            "has no column 'a'",
            id="a column is missing in the file",
        ),
        pytest.param(
            ["--data", "nowhere.csv"], 2, "--data nowhere.csv: no such file", id="no such file"
        ),
        pytest.param(
            ["--data", __file__],
            2,
            "is not known from its name; give --format criteo, csv, libsvm or parquet",
            id="unknown format",
        ),
        pytest.param(
            ["--delimiter", ";;"], 2, "at most 1 character", id="a delimiter of two characters"
        ),
        pytest.param(
            ["--signature", "never", "--timeout-seconds", "0.5"],
            1,
            "did not answer within 0.5 s; give a longer --timeout_seconds",
            id="the deadline is over",
        ),
    ],
)
def test_predict_refuses_in_one_line(
    zoo: Any,
    csv_file: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    assert _platform("predict", zoo, csv_file, "--signature", "columns", *arguments) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: ")
    assert text in line


def test_evaluate_refuses_scores_that_are_no_probabilities(
    zoo: Any, csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--signature", "columns", "--output", "total")
    assert _platform("evaluate", zoo, csv_file, *arguments) == 2
    assert "expected [0, 1]" in capsys.readouterr().err


def test_evaluate_refuses_a_file_without_labels(
    half_plus_two: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("x\n2\n")
    assert _platform("evaluate", half_plus_two, rows) == 1
    error = capsys.readouterr().err
    assert "has no label column 'label'" in error
    assert "(--label)" in error
