"""Formats by file names."""

from __future__ import annotations

import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.format_guess import guess_format


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/train.tsv.gz", "criteo"),
        ("dac_sample.txt", "criteo"),
        ("a.csv", "csv"),
        ("adult.data.gz", "csv"),
        ("x.parquet", "parquet"),
        ("f.libsvm.zst", "libsvm"),
    ],
)
def test_the_ending_shows_the_format(name: str, expected: str) -> None:
    assert guess_format(name) == expected


@pytest.mark.parametrize("name", ["rows", "rows.gz", "rows.json"])
def test_an_unknown_ending_asks_for_the_format(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="give --format criteo, csv, libsvm or parquet"):
        guess_format(name)
