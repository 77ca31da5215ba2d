"""How long a file is, from its beginning."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.errors import NotFoundError
from hotrow.trainer.data import DataError, expected_rows
from hotrow.trainer.data.lines import expected_lines

Write = Callable[..., Path]


def text(lines: int) -> bytes:
    random = np.random.default_rng(0)
    return b"".join(b"%d\t%d\n" % (a, b) for a, b in random.integers(0, 10**6, (lines, 2)).tolist())


def test_a_small_file_is_counted(write: Write) -> None:
    assert expected_rows(write("a.tsv", text(1000))) == 1000


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress])
def test_a_longer_file_is_estimated(write: Write, compress: Callable[[bytes], bytes]) -> None:
    path = write("a", compress(text(400_000)))
    assert expected_lines(path, read_bytes=1 << 20) == pytest.approx(400_000, rel=0.35)


def test_parquet_knows_its_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(12_345)}), tmp_path / "a.parquet")
    assert expected_rows(tmp_path / "a.parquet") == 12_345


def test_a_missing_or_damaged_file_is_reported(tmp_path: Path, write: Write) -> None:
    for name in ("a.tsv", "a.parquet"):
        with pytest.raises(NotFoundError, match=rf"data file .*{name} does not exist"):
            expected_rows(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        expected_rows(write("b.parquet", "no"))
    with pytest.raises(DataError, match="cannot be read"):
        expected_rows(write("c.tsv.gz", gzip.compress(text(1000))[:-100]))
