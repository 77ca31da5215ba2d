"""Blocks of whole lines from files."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hotrow.errors import NotFoundError
from hotrow.trainer.data import DataError
from hotrow.trainer.data.lines import LineBlock, first_line, line_blocks, lines_before

Write = Callable[..., Path]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "two gzip members": lambda data: gzip.compress(data[:10]) + gzip.compress(data[10:]),
    "zstd": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_file_is_read_whole_whatever_its_compression(compression: str, write: Write) -> None:
    data = b"".join(b"line %d\n" % i for i in range(5000))
    path = write("data", COMPRESSORS[compression](data))
    blocks = list(line_blocks(path, block_bytes=1000))
    assert b"".join(block.data for block in blocks) == data
    assert len(blocks) > 10


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=20),
    skip=st.integers(0, 3),
    block_bytes=st.integers(1, 40),
    ended=st.booleans(),
)
def test_blocks_hold_whole_lines_and_number_them(
    tmp_path: Path, lines: list[bytes], skip: int, block_bytes: int, ended: bool
) -> None:
    assume(not lines or not lines[0].startswith((b"\x1f\x8b", b"\x28\xb5", b"BZh")))
    path = tmp_path / "data"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ended and lines else b""))
    numbered = []
    for block in line_blocks(path, skip_lines=skip, block_bytes=block_bytes):
        parts = block.data.split(b"\n")
        if block.data.endswith(b"\n"):
            parts.pop()
        numbered += [(block.first_line + i, line) for i, line in enumerate(parts)]
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    expected = list(enumerate(content.removesuffix(b"\n").split(b"\n"), start=1))[skip:]
    assert [n for n in numbered if n[1]] == [e for e in expected if e[1]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n", b"\r\n"]), max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    block_bytes=st.integers(1, 9),
)
def test_a_line_belongs_to_the_span_in_which_it_begins(
    tmp_path: Path, data: bytes, cuts: list[int], block_bytes: int
) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    numbered = []
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, stop in pairwise(edges):
        before = lines_before(path, start)
        for block in line_blocks(path, block_bytes=block_bytes, span=(start, stop)):
            parts = block.data.splitlines(keepends=True)
            numbered += [(before + block.first_line + i, line) for i, line in enumerate(parts)]
    offset = 0
    expected = list(enumerate(data.splitlines(keepends=True), start=1))
    assert numbered == expected
    for number, line in expected:
        begins = next(start for start, stop in pairwise(edges) if start <= offset < stop)
        assert lines_before(path, begins) < number
        offset += len(line)


def test_a_byte_order_mark_is_no_part_of_the_first_line(write: Write) -> None:
    path = write("data.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    assert first_line(path) == "a,b"


def test_rows_leave_out_empty_lines_and_keep_the_numbers() -> None:
    block = LineBlock(b"a\r\n\r\nb\n\nc", first_line=7)
    assert block.rows() == [(7, b"a"), (9, b"b"), (11, b"c")]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"data file /no/such.tsv does not exist"):
        first_line(Path("/no/such.tsv"))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a directory; give a data file"):
        first_line(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cut_off.tsv.gz", "cannot be read: Truncated compressed stream; is it cut off"),
        ("damaged.tsv.gz", "cannot be read: zlib inflate failed: incorrect data check"),
        ("not_gzip.tsv.gz", "is named .gz but is not gzip data; rename it"),
    ],
)
def test_a_damaged_gzip_file_is_refused(rejected: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        list(line_blocks(rejected / name))


def test_an_empty_file_has_no_first_line(rejected: Path) -> None:
    with pytest.raises(DataError, match=r"empty.tsv is empty; a data file has at least one line"):
        first_line(rejected / "empty.tsv")


def test_a_line_without_end_is_refused_before_memory_runs_out(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.trainer.data.lines.MAX_LINE_BYTES", 1000)
    with pytest.raises(DataError, match="a line is longer than 1000 bytes"):
        list(line_blocks(write("data", b"x" * 5000), block_bytes=100))
