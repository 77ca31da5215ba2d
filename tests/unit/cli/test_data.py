"""`platform data`: the commands as a user runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hotrow.cli.main import main
from hotrow.config import DataConfig
from hotrow.trainer.data import open_data

Run = Callable[..., str]
REJECTED = Path(__file__).parents[1] / "trainer" / "data" / "rejected"
ADULT = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,income"
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `platform data ...`, checks the exit code, returns standard output, or the error."""

    def run_command(*arguments: str | Path, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["data", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run_command


@pytest.mark.parametrize("arguments", [[], ["generate"], ["inspect"], ["convert"]])
def test_help_shows_whole_lines_of_examples(run: Run, arguments: list[str]) -> None:
    text = run(*arguments, "--help")
    assert "Usage: platform data" in text
    assert "\\b" not in text
    if arguments:
        assert re.search(rf"(?m)^    platform data {arguments[0]} ", text)


def test_generated_files_are_inspected_and_converted(run: Run, tmp_path: Path) -> None:
    out, valid = tmp_path / "train.tsv.gz", tmp_path / "train.valid.tsv.gz"
    text = run("generate", out, "--rows", "3000", "--valid-rows", "500", "--keys", "1000")
    assert re.search(r"train.tsv.gz: 3,000 rows, label rate 0\.\d+, true AUC 0\.\d+, true", text)
    assert re.search(r"train.valid.tsv.gz: 500 rows", text)
    truth = json.loads((tmp_path / "train.tsv.gz.truth.json").read_text())
    assert truth["parameters"]["keys"] == 1000

    text = run("inspect", valid)
    assert "500 rows, 39 columns, label rate" in text
    assert "read as: format criteo, label label\n" in text
    assert len(text.splitlines()) == 42

    parquet = tmp_path / "train.parquet"
    text = run("convert", out, parquet)
    assert text == f"{parquet}: 3,000 rows, 39 columns\n"
    summary = json.loads(run("inspect", parquet, "--json", "-"))
    assert summary["rows"] == 3000
    assert summary["label_rate"] == truth["files"][0]["label_rate"]
    assert [column["kind"] for column in summary["columns"]] == ["number"] * 13 + ["text"] * 26


def test_json_goes_to_a_file_beside_the_lines(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    text = run("generate", tmp_path / "a.tsv", "--rows", "100", "--json", report)
    assert "100 rows" in text
    values = json.loads(report.read_text())
    assert values == json.loads((tmp_path / "a.tsv.truth.json").read_text())


def test_adult_census_is_inspected_by_its_options(run: Run, shared: Path) -> None:
    path = shared / "data/adult_census/adult.data.gz"
    options = ["--columns", ADULT, "--label", "income", "--positive", ">50K"]
    text = run("inspect", path, *options, "--top", "1")
    assert "32,561 rows, 14 columns, label rate 0.2408" in text
    assert "Private (22,696)" in text
    assert "Self-emp" not in text


def test_a_csv_is_inspected_without_any_option(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    rows = [f'{20 + i};"it; ops";{i / 4};"{("no", "yes")[i % 2]}"' for i in range(40)]
    path.write_text("\n".join(["age;job;rate;y", *rows, "broken"]) + "\n")
    text = run("inspect", path)
    assert "40 rows, 3 columns, label rate 0.5000" in text
    assert (
        "read as: format csv, delimiter ';', header in line 1, label y, positive 'yes' "
        "(guessed: delimiter, label, positive)\n"
    ) in text
    assert "left out: 1 malformed line, the first is line 42: 1 fields, not 4: 'broken'" in text
    report = json.loads(run("inspect", path, "--json", "-"))
    assert [column["kind"] for column in report["columns"]] == ["integer", "text", "number"]
    assert (report["columns"][0]["low"], report["columns"][0]["high"]) == (20, 59)
    assert report["columns"][0]["mean"] == 39.5
    assert report["reading"] == {
        "format": "csv",
        "delimiter": ";",
        "columns": None,
        "label": "y",
        "positive": "yes",
        "guessed": ["delimiter", "label", "positive"],
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--delimiter", ","], "4 between ';'; set data.delimiter (--delimiter) to ';'"),
        (["--label", "rate"], "line 2: rate is '0.25', not 0 or 1; set data.positive (--positive)"),
        (["--positive", "Yes"], "no label is 'Yes' in 3 rows; set data.positive (--positive)"),
    ],
)
def test_a_csv_that_is_read_the_wrong_way_is_an_error_with_its_reason(
    run: Run, tmp_path: Path, options: list[str], message: str
) -> None:
    path = tmp_path / "bank.csv"
    path.write_text("age;job;rate;y\n20;a;0.25;no\n21;b;0.5;yes\n22;c;2;no\n")
    error = run("inspect", path, *options, code=1)
    assert error.count("\n") == 1
    assert message in error


def test_columns_of_a_configuration_are_converted_with_their_types(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("age,job,item,label\n31,smith,7,1\n,baker,8,0\n")
    config = tmp_path / "run.yaml"
    config.write_text(
        """
        name: small
        data: {format: csv, train: rows.csv}
        features:
          dense: {columns: [age]}
          sparse: [{columns: [item], dim: 4, hash: false}]
        model: {arch: logistic}
        """
    )
    out = tmp_path / "rows.parquet"
    run("convert", tmp_path / "rows.csv", out, "--config", config)
    (batch,) = open_data(out, DataConfig(format="csv", train="-")).raw_batches(9)
    assert {name: str(batch.array(name).dtype) for name in batch.arrays} == {
        "age": "float32",
        "item": "int64",
    }
    assert batch.array("item").tolist() == [7, 8]


def test_malformed_lines_stop_a_conversion_or_are_reported(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    error = run("convert", REJECTED / "bad_label.tsv", out, code=1)
    assert error.count("\n") == 1
    assert "bad_label.tsv: line 4: label is '2', not 0 or 1" in error
    assert not out.exists()
    text = run("convert", REJECTED / "bad_label.tsv", out, "--on-malformed", "skip")
    assert "4 rows, 39 columns; left out: 1 malformed line, the first is line 4: label" in text
    inspected = run("inspect", REJECTED / "bad_label.tsv")
    assert "left out: 1 malformed line, the first is line 4: label is '2'" in inspected


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect", "none.tsv"], 1, "data file none.tsv does not exist"),
        (["inspect", "none"], 1, "data file none does not exist"),
        (["convert", "none", "x.parquet"], 2, "the format of none is not known from its name"),
        (
            ["convert", "none.tsv", "x.parquet", "--positive", "x"],
            2,
            "positive is an option of format 'csv' or 'parquet'",
        ),
        (["inspect", "none.tsv", "--format", "cvs"], 2, "'cvs' is not one of"),
        (["inspect", "none.tsv", "--rows", "0"], 2, "0 is not in the range x>=1"),
        (["convert", "none.tsv", "out.pq"], 2, "out.pq does not end in .parquet"),
        (["convert", "none.tsv", "out.parquet"], 1, "data file none.tsv does not exist"),
        (["generate", "/none/x.tsv"], 1, "/none/x.tsv cannot be written: No such file"),
        (["generate", "x.tsv", "--keys", "3"], 2, "keys is 3; it must be between 16"),
        (["generate", "x.tsv", "--valid-out", "y.tsv"], 2, "--valid-rows is 0; give both"),
        (
            ["generate", "x.tsv", "--valid-rows", "5", "--valid-out", "x.tsv"],
            2,
            "--valid-out is OUT itself",
        ),
        (["inspect", "none.tsv", "--config", "none.yaml"], 1, "none.yaml"),
    ],
)
def test_wrong_use_is_one_line(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run(*arguments, code=code)
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []
