"""Configurations that are proposed for files: they load, and read the file that they are for."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.cli.main import main
from hotrow.config import RunConfig, load_config
from hotrow.trainer.data import BatchStream, open_data
from hotrow.trainer.data.list_columns import with_list_columns


def proposed(data: Path, *options: str) -> tuple[RunConfig, str]:
    """Returns the configuration that `platform data inspect` writes for a file, and its text."""
    path = data.parent / "proposed.yaml"
    assert main(["data", "inspect", str(data), "--write-config", str(path), *options]) == 0
    config = with_list_columns(load_config(path))
    batch = next(iter(BatchStream(config.data.train, config)))
    assert batch.labels is not None
    assert set(batch.labels.tolist()) == {0.0, 1.0}
    return config, path.read_text()


def bank(path: Path, delimiter: str = ";", rows: int = 400) -> Path:
    """Writes a CSV as UCI's bank marketing has it: quotes, yes and no, a column `default`."""
    draw = random.Random(1)
    lines = [["age", "job", "default", "balance", "duration", "genres", "contact_id", "y"]]
    for i in range(rows):
        lines.append(
            [
                str(draw.randint(18, 95)),
                draw.choice(['"admin."', f'"it{delimiter} ops"', '"student"']),
                draw.choice(['"no"', '"yes"', '"unknown"', ""]),
                str(draw.randint(-500, 500)),
                str(10 ** draw.randint(0, 6) + i),
                '"' + "|".join(draw.sample(["Action", "Comedy", "War", "Noir"], 2)) + '"',
                f"c{i}",
                '"yes"' if draw.random() < 0.2 else '"no"',
            ]
        )
    path.write_text("".join(delimiter.join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_a_csv_with_quotes_and_labels_that_are_words(tmp_path: Path, delimiter: str) -> None:
    name = "bank.tsv" if delimiter == "\t" else "bank.csv"
    config, text = proposed(bank(tmp_path / name, delimiter))
    assert config.data.format == "csv"
    assert config.data.train == str(tmp_path / name)
    assert (config.data.delimiter, config.data.label, config.data.positive) == (
        delimiter,
        "y",
        "yes",
    )
    dense = {c.name: (c.transform, c.standardize) for c in config.features.dense_columns()}
    assert dense == {
        "age": ("none", True),
        "balance": ("log", True),
        "duration": ("none", True),
    }
    sparse = {c.name: (c.hash, c.separator) for c in config.features.sparse_columns()}
    assert sparse == {"job": (True, None), "default": (True, None), "genres": (True, "|")}
    assert "# left out: contact_id (guess: nearly every row has a value of its own)" in text
    assert f"train: {name}" in text


def test_the_adult_census_without_a_header(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "adult.data.gz"
    with gzip.open(shared / "data" / "adult_census" / "adult.data.gz", "rt") as file:
        path.write_bytes(gzip.compress("".join(next(file) for _ in range(3000)).encode()))
    config, _ = proposed(path)
    assert config.data.columns == tuple(f"c{i}" for i in range(1, 16))
    assert (config.data.label, config.data.positive) == ("c15", ">50K")
    assert {"c1", "c3"} <= {c.name for c in config.features.dense_columns()}
    assert {"c2", "c4", "c14"} <= {c.name for c in config.features.sparse_columns()}


def test_malformed_lines_are_skipped_with_their_reason(tmp_path: Path) -> None:
    path = bank(tmp_path / "bank.csv")
    path.write_text(path.read_text() + "broken\n")
    config, text = proposed(path)
    assert config.data.on_malformed == "skip"
    assert "# 1 malformed line, the first is line 402: 1 fields, not 8: 'broken'" in text


def test_parquet_with_lists_integers_and_words(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = range(300)
    table = {
        "target": [i % 3 == 0 for i in rows],
        "user_id": [i % 70 for i in rows],
        "hour": [i % 24 for i in rows],
        "price": [i / 7 for i in rows],
        "tags": [["a", "b"][: i % 3] for i in rows],
        "seen": [[i % 5, i % 7] for i in rows],
        "same": ["x" for _ in rows],
    }
    pq.write_table(pa.table(table), path)
    config, text = proposed(path)
    assert config.data.format == "parquet"
    assert (config.data.label, config.data.positive) == ("target", "true")
    assert [c.name for c in config.features.dense_columns()] == ["price"]
    sparse = {c.name: (c.hash, c.lists) for c in config.features.sparse_columns()}
    assert sparse == {
        "user_id": (False, False),
        "hour": (False, False),
        "tags": (True, True),
        "seen": (False, True),
    }
    assert "# left out: same (guess: it has one value)" in text


@pytest.mark.parametrize(("name", "arch"), [("a.tsv.gz", "dlrm"), ("a.libsvm", "logistic")])
def test_formats_with_fixed_columns(shared: Path, tmp_path: Path, name: str, arch: str) -> None:
    path = tmp_path / name
    if arch == "dlrm":
        source = shared / "data" / "criteo_head10k" / "criteo_head10k.tsv.gz"
        with gzip.open(source, "rt") as file:
            path.write_bytes(gzip.compress("".join(next(file) for _ in range(500)).encode()))
    else:
        path.write_text("1 3:0.5 4:2\n0\n1 5:1\n")
    config, _ = proposed(path)
    assert config.model.arch == arch
    assert config.data.batch_size == 64
    if arch == "logistic":
        assert [c.combiner for c in config.features.sparse_columns()] == ["sum"]


@pytest.mark.parametrize(
    ("content", "options", "code", "text"),
    [
        pytest.param("a,b\nx,1\nz,3\nv,7\n", [], 2, "no column of labels was found", id="no label"),
        pytest.param("a,label\nx,1\nx,0\n", [], 2, "no column is left to learn from: a: it has one",
                     id="no feature"),
        pytest.param("a,b\nx,1\nz,0\n", ["--label", "c"], 2, "--label c: ", id="a wrong label"),
        pytest.param("", [], 1, "rows.csv is empty", id="an empty file"),
    ],
)  # fmt: skip
def test_a_file_that_nothing_can_be_proposed_for_ends_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    options: list[str],
    code: int,
    text: str,
) -> None:
    (tmp_path / "rows.csv").write_text(content)
    out = tmp_path / "new.yaml"
    arguments = ["data", "inspect", str(tmp_path / "rows.csv"), "--write-config", str(out)]
    assert main([*arguments, *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line
    assert not out.exists()


def test_an_existing_configuration_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine")
    data = bank(tmp_path / "bank.csv")
    assert main(["data", "inspect", str(data), "--write-config", str(path)]) == 1
    assert "exists; remove it or name another file" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_a_proposal_trains_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bank(tmp_path / "bank.csv")
    assert main(["data", "inspect", "bank.csv", "--write-config", "bank.yaml"]) == 0
    arguments: list[Any] = ["--run-dir", "run", "--set", "train.max_steps=2"]
    assert main(["train", "bank.yaml", *arguments]) == 0
    config = load_config(tmp_path / "run" / "config.yaml")
    assert next(open_data("bank.csv", config.data, config.features).raw_batches(5)).size == 5
