"""Delimiter and header of delimited text, from its first lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotrow.config import DataConfig
from hotrow.trainer.data import DataError, open_data
from hotrow.trainer.data.guess.dialect import guess_dialect


@pytest.mark.parametrize(
    ("text", "delimiter", "names", "header"),
    [
        pytest.param('"a";"b";"y"\n1;"x, z";"no"\n2;"u, v, w";"yes"\n', ";", ["a", "b", "y"], True,
                     id="semicolons around quoted texts with commas"),
        pytest.param("a\tb\n1 2\t3\n", "\t", ["a", "b"], True, id="tabs"),
        pytest.param("u|v\n1|x\n", "|", ["u", "v"], True, id="bars"),
        pytest.param("a;b\n1,5;2,5\n3,5;4,5\n", ";", ["a", "b"], True, id="decimal commas"),
        pytest.param("39, Bachelors, <=50K\n50, HS-grad, >50K\n", ",", ["c1", "c2", "c3"], False,
                     id="no header: line 1 has a number"),
        pytest.param("red,big\nblue,big\nred,new\n", ",", ["c1", "c2"], False,
                     id="no header: values of line 1 come again"),
        pytest.param("colour,size\nblue,big\nred,new\n", ",", ["colour", "size"], True,
                     id="a header over texts"),
        pytest.param("a,a\n1,2\n", ",", ["c1", "c2"], False, id="a name twice is no header"),
        pytest.param("word\nred\nblue\n", ",", ["word"], True, id="one column"),
    ],
)  # fmt: skip
def test_delimiter_and_names_follow_from_the_lines(
    text: str, delimiter: str, names: list[str], header: bool
) -> None:
    found = guess_dialect(text.splitlines())
    assert (found.delimiter, list(found.names), found.header) == (delimiter, names, header)


def test_a_few_odd_lines_do_not_change_the_delimiter() -> None:
    lines = ["a;b;c", *(f"{i};x,y;{i}" for i in range(30)), "broken", "1,2,3"]
    assert guess_dialect(lines).delimiter == ";"


def test_a_wrong_delimiter_is_refused_with_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a;b;label\n1;2;0\n")
    with pytest.raises(DataError, match=r"3 between ';'; set data.delimiter \(--delimiter\)"):
        open_data(path, DataConfig(format="csv", train="-"))
    path.write_text("only\nred\nblue\n")
    assert [c.name for c in open_data(path, DataConfig(format="csv", train="-")).columns] == [
        "only"
    ]
