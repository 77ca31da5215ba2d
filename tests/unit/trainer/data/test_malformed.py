"""Files that must be rejected, and what is said about them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotrow.config import DataConfig, FeaturesConfig
from hotrow.trainer.data import Column, ColumnKind, DataError, Malformed, open_data
from hotrow.trainer.data.malformed import MAX_SHOWN_CHARACTERS, shown

CRITEO = {"format": "criteo", "train": "-"}
CSV = {"format": "csv", "train": "-"}
LIBSVM = {"format": "libsvm", "train": "-"}
IDS = FeaturesConfig.model_validate({"sparse": {"columns": ["id"], "dim": 4, "hash": False}})
LISTS = FeaturesConfig.model_validate(
    {"sparse": {"columns": ["id"], "dim": 4, "hash": False, "separator": "|"}}
)
CASES = [
    # file, data, features, rows left, line, what is said
    ("short_line.tsv", CRITEO, None, 3, 3, "12 fields, not 40: '1\\t5\\t1"),
    ("long_line.tsv", CRITEO, None, 2, 2, "41 fields, not 40: "),
    ("bad_number.tsv", CRITEO, None, 2, 2, "I1 is '12x', not a finite number"),
    ("infinite_number.tsv", CRITEO, None, 2, 2, "I1 is '1e999', not a finite number"),
    ("bad_label.tsv", CRITEO, None, 4, 4, "label is '2', not 0 or 1"),
    ("missing_label.tsv", CRITEO, None, 2, 2, "label is '', not 0 or 1"),
    ("not_utf8.tsv", CRITEO, None, 2, 2, "1 fields, not 40: '\ufffd\ufffd'"),
    ("csv_short_line.csv", CSV, IDS, 2, 3, "2 fields, not 3: '8,32'"),
    ("csv_bad_integer.csv", CSV, IDS, 2, 4, "id is '8.5', not a 64-bit integer"),
    ("csv_huge_integer.csv", CSV, IDS, 2, 4, "id is '9223372036854775808', not a 64-bit"),
    ("csv_open_quote.csv", CSV, IDS, 3, 3, "a double quote that is not closed: '0,"),
    ("csv_bad_list.csv", CSV, LISTS, 1, 3, "id is '8|x', not 64-bit integers separated by '|'"),
    ("libsvm_bad_label.libsvm", LIBSVM, None, 2, 2, "label is '2', not 0, 1 or -1"),
    ("libsvm_bad_id.libsvm", LIBSVM, None, 2, 2, "'a:1' is not id:value"),
    ("libsvm_bad_value.libsvm", LIBSVM, None, 2, 2, "'4:one' is not id:value"),
    ("libsvm_no_value.libsvm", LIBSVM, None, 2, 4, "'4' is not id:value"),
]
IDS_OF_CASES = [case[0] for case in CASES]


@pytest.mark.parametrize(
    ("name", "data", "features", "rows", "line", "what"), CASES, ids=IDS_OF_CASES
)
def test_the_first_malformed_line_stops_the_reader(
    rejected: Path,
    name: str,
    data: dict[str, str],
    features: FeaturesConfig | None,
    rows: int,
    line: int,
    what: str,
) -> None:
    file = open_data(rejected / name, DataConfig.model_validate(data), features)
    with pytest.raises(DataError, match=re.escape(f"{name}: line {line}: {what}")) as caught:
        list(file.raw_batches(2))
    assert "on_malformed: skip" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "features", "rows", "line", "what"), CASES, ids=IDS_OF_CASES
)
def test_malformed_lines_are_skipped_and_counted(
    rejected: Path,
    name: str,
    data: dict[str, str],
    features: FeaturesConfig | None,
    rows: int,
    line: int,
    what: str,
) -> None:
    config = DataConfig.model_validate(data | {"on_malformed": "skip"})
    file = open_data(rejected / name, config, features)
    assert sum(batch.size for batch in file.raw_batches(2)) == rows
    assert file.malformed == Malformed(count=1, first_line=line)
    list(file.raw_batches(2))
    assert file.malformed.count == 1, "a second pass counts anew"


def test_lines_are_numbered_across_blocks_and_blank_lines(tmp_path: Path) -> None:
    line = b"\t".join([b"1"] * 40) + b"\n"
    path = tmp_path / "big.tsv"
    path.write_bytes(line * 40_000 + b"\n\n" + line + b"x\n" + line * 40_000 + b"y\tz\n")
    config = DataConfig.model_validate(CRITEO | {"on_malformed": "skip"})
    file = open_data(path, config)
    assert sum(batch.size for batch in file.raw_batches(4096)) == 80_001
    assert file.malformed == Malformed(count=2, first_line=40_004)


def test_the_first_bad_line_is_reported_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    good = "\t".join(["1"] * 40) + "\n"
    path = tmp_path / "two.tsv"
    path.write_text(good + good.replace("1", "x", 1) + good + "short\n")
    with pytest.raises(DataError, match="line 2: label is 'x'"):
        list(open_data(path, DataConfig.model_validate(CRITEO)).raw_batches(10))


def test_a_file_without_any_legal_row_is_refused(rejected: Path) -> None:
    with pytest.raises(DataError, match=r"has no row to read$"):
        list(
            open_data(rejected / "blank_lines.tsv", DataConfig.model_validate(CRITEO)).raw_batches(
                2
            )
        )


def test_a_long_text_is_cut_in_messages() -> None:
    assert shown("x" * 500) == repr("x" * MAX_SHOWN_CHARACTERS + "...")


@pytest.mark.parametrize(
    ("data", "kind", "content", "what"),
    [
        (CSV, ColumnKind.TEXT, "x,label\na,no\n", "set data.positive (--positive) to the text"),
        (CSV, ColumnKind.INTEGER, "x,label\n2014-10-21 00:00,1\n", "hash: true takes any text"),
    ],
)
def test_the_reason_of_a_malformed_line_says_what_to_do(
    tmp_path: Path, data: dict[str, str], kind: ColumnKind, content: str, what: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    config = DataConfig.model_validate(data)
    for policy in ("fail", "skip"):
        file = open_data(
            path, config.model_copy(update={"on_malformed": policy}), columns=[Column("x", kind)]
        )
        with pytest.raises(DataError, match=re.escape(what)):  # with skip no row is left
            list(file.record_batches())


def test_a_criteo_label_is_no_text(rejected: Path) -> None:
    file = open_data(rejected / "bad_label.tsv", DataConfig.model_validate(CRITEO))
    with pytest.raises(DataError, match=r"label is '2', not 0 or 1 \(on_malformed"):
        list(file.record_batches())
