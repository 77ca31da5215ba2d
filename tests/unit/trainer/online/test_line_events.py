"""Events that are lines become the rows that a file of these lines has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from event_runs import config

from hotrow.config import RunConfig, parse_config
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.online.event_columns import columns_of_events
from hotrow.trainer.online.line_events import LineParser

COLUMNS = ["click", "user", "item", "price", "ts"]


def run_of(data: dict[str, object], sparse: str = "ids") -> RunConfig:
    features = {"sparse": [{"columns": [sparse], "dim": 2, "combiner": "sum"}]}
    if data["format"] == "criteo":
        features = {"dense": [{"columns": ["I1"]}], "sparse": [{"columns": ["C1"], "dim": 2}]}
    raw = {"name": "x", "data": data, "features": features, "model": {"arch": "logistic"}}
    return parse_config(raw | {"online": {"format": "data"}}, source="test")


def test_lines_are_rows_of_a_file(tmp_path: Path) -> None:
    run = config(format="data", data__columns=COLUMNS)
    texts = ["1,a,5,0.1,3", '0,"b, c",-1,,4', "1,, 7 ,2e3,5"]
    parsed = LineParser(columns_of_events(run), run.data).parse([t.encode() for t in texts])
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{text}\n" for text in texts))
    columns = columns_of_events(run).to_parse
    (rows,) = open_data(path, run.data, columns=columns, require_labels=True).record_batches()
    assert parsed.rows.equals(rows)
    assert parsed.problems == {}


def test_bad_lines_are_found_wherever_they_are() -> None:
    run = config(format="data", data__columns=COLUMNS)
    bad = {
        b"1,a": "2 fields, not 5",
        b"2,a,5,1,3": "click is '2'",
        b"1,a,x,1,3": "item is 'x'",
        b'1,"a,5,1,3': "a double quote that is not closed",
        b"": "is an empty line",
        b"  ": "is an empty line",
        b"1,a,5,1,3\n1,a,5,1,3": "holds a line end",
        b"1,a,5,1,3\r": "holds a line end",
    }
    for seed in range(20):
        lines: list[bytes] = [f"1,u{i},{i},0.5,{i}".encode() for i in range(8)]
        lines += random.Random(seed).sample(list(bad), k=1 + seed % len(bad))
        random.Random(seed).shuffle(lines)
        parsed = LineParser(columns_of_events(run), run.data).parse(lines)
        legal = [index for index, line in enumerate(lines) if line not in bad]
        assert parsed.kept.tolist() == legal
        items = [int(lines[index].split(b",")[2]) for index in legal]
        assert parsed.rows.column("item").to_pylist() == items
        assert parsed.problems.keys() == set(range(len(lines))) - set(legal)
        for index, what in parsed.problems.items():
            assert what.startswith(bad[lines[index]]), (lines[index], what)


def test_lines_of_libsvm() -> None:
    run = run_of({"format": "libsvm", "train": "x", "weights": True})
    lines = [b"1 5:0.5 7:1", b"# nothing", b"-1 3:2", b"1 x:1", b"0"]
    parsed = LineParser(columns_of_events(run), run.data).parse(lines)
    assert parsed.rows.to_pydict() == {
        "label": [1.0, 0.0, 0.0],
        "ids": [[5, 7], [3], []],
        "ids.weights": [[0.5, 1.0], [2.0], []],
    }
    assert parsed.kept.tolist() == [0, 2, 4]
    assert parsed.problems[1] == "is an empty line"
    assert "'x:1' is not id:value" in parsed.problems[3]


def test_lines_of_criteo() -> None:
    run = run_of({"format": "criteo", "train": "x"})
    line = "\t".join(["1", "3", *[""] * 12, "68fd1e64", *[""] * 25])
    parsed = LineParser(columns_of_events(run), run.data).parse([line.encode(), b"1\t2"])
    assert parsed.rows.to_pydict() == {"label": [1.0], "I1": [3.0], "C1": ["68fd1e64"]}
    assert parsed.problems == {1: "2 fields, not 40: '1\\t2'"}


def test_a_header_names_the_columns() -> None:
    run = config(format="data")
    columns = columns_of_events(run)
    parsed = LineParser(columns, run.data, "ts,price,click,item,user").parse([b"9,0.5,1,4,a"])
    assert parsed.rows.to_pydict() == {
        "click": [1.0],
        "price": [0.5],
        "user": ["a"],
        "item": [4],
        "ts": ["9"],
    }
    with pytest.raises(InvalidArgumentError, match=r"no column 'user'.*it has: click, usr"):
        LineParser(columns, run.data, "click,usr,item,price,ts")
    with pytest.raises(InvalidArgumentError, match="no label column 'click'"):
        LineParser(columns, run.data, "user,item,price,ts")


@pytest.mark.parametrize(
    ("data", "online", "error"),
    [
        ({"format": "libsvm"}, {"time": "ts"}, "online.time: a line of format 'libsvm'"),
        ({"format": "criteo"}, {"time": "ts"}, "online.time: a line of format 'criteo'"),
    ],
)
def test_a_format_without_names_has_no_time(
    data: dict[str, str], online: dict[str, str], error: str
) -> None:
    run = run_of({**data, "train": "x"})
    run = run.model_copy(update={"online": run.online.model_copy(update=online)})
    with pytest.raises(InvalidArgumentError, match=error):
        columns_of_events(run)


@pytest.mark.parametrize("name", ["price", "click"])
def test_a_column_has_one_meaning(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"online.time: column '{name}' is"):
        columns_of_events(config(time=name))
