"""Rows in pieces of bounded size."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow.errors import DataLossError
from hotrow.trainer.checkpoint import table_files
from hotrow.trainer.checkpoint.array_file import write_arrays
from hotrow.trainer.checkpoint.table_files import (
    RowFiles,
    read_removed,
    read_rows,
    stem_of,
    write_removed,
)

LINE_BYTES = 8


class Reader:
    """Yields `rows` rows in parts of uneven sizes, as partitions do."""

    def __init__(self, rows):
        random = np.random.default_rng(3)
        self.all = (
            random.permutation(rows) - rows // 2,
            random.integers(0, 256, (rows, LINE_BYTES), np.uint8),
            *(random.integers(0, 2**32, rows, np.uint32) for _ in range(3)),
        )
        self._next = 0

    def read_into(self, *arrays):
        first, self._next = self._next, self._next + min(len(arrays[0]), 7)
        parts = [array[first : self._next] for array in self.all]
        for array, part in zip(arrays, parts, strict=True):
            array[: len(part)] = part
        return len(parts[0])


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 30, 95])
def test_rows_come_back_in_order_from_pieces_that_are_all_full_but_the_last(
    tmp_path, monkeypatch, rows
):
    monkeypatch.setattr(table_files, "PIECE_BYTES", 10 * (LINE_BYTES + 20))
    reader = Reader(rows)
    writing = RowFiles(reader, stem_of("a/b"), LINE_BYTES, rows + 3, tmp_path)
    while writing.write_some():
        pass
    files = writing.files
    assert writing.rows == rows
    assert list(files) == [f"a%2Fb-{i:05d}.safetensors" for i in range(-(-rows // 10))]
    assert {path.name for path in tmp_path.iterdir()} == set(files)
    pieces = [read_rows(tmp_path / name, LINE_BYTES) for name in files]
    assert [len(piece.keys) for piece in pieces[:-1]] == [10] * (len(pieces) - 1)
    for number, field in enumerate(("keys", "lines", "clocks", "counts", "places")):
        if pieces:
            found = np.concatenate([getattr(piece, field) for piece in pieces])
            np.testing.assert_array_equal(found, reader.all[number])


def test_what_was_read_is_written_before_another_table_goes_on(tmp_path):
    reader = Reader(20)
    writing = RowFiles(reader, "t", LINE_BYTES, 20, tmp_path)
    assert writing.write_some()
    assert not writing.files
    writing.flush()
    assert [len(read_rows(tmp_path / name, LINE_BYTES).keys) for name in writing.files] == [7]
    while writing.write_some():
        pass
    pieces = [read_rows(tmp_path / name, LINE_BYTES) for name in writing.files]
    assert [len(piece.keys) for piece in pieces] == [7, 13]
    np.testing.assert_array_equal(np.concatenate([piece.keys for piece in pieces]), reader.all[0])


def test_keys_that_are_gone_come_back(tmp_path):
    write_removed(np.array([3, -4, 2**62]), tmp_path / "r")
    assert read_removed(tmp_path / "r").tolist() == [3, -4, 2**62]


def arrays(rows=2, line_bytes=LINE_BYTES, **other):
    return {
        "keys": np.zeros(rows, np.int64),
        "lines": np.zeros((rows, line_bytes), np.uint8),
        "clocks": np.zeros(rows, np.uint32),
        "counts": np.zeros(rows, np.uint32),
        "places": np.zeros(rows, np.uint32),
        **other,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        arrays(line_bytes=4),
        arrays(clocks=np.zeros(3, np.uint32)),
        arrays(keys=np.zeros(2, np.int32)),
        arrays(keys=np.zeros((2, 1), np.int64)),
        arrays(more=np.zeros(1)),
    ],
    ids=["nothing", "other lines", "other length", "other type", "other rank", "one more"],
)
def test_a_file_with_other_arrays_holds_no_rows(tmp_path, wrong):
    write_arrays(tmp_path / "a", arrays())
    read_rows(tmp_path / "a", LINE_BYTES)
    write_arrays(tmp_path / "b", wrong)
    with pytest.raises(DataLossError, match="does not hold rows with lines of 8 bytes"):
        read_rows(tmp_path / "b", LINE_BYTES)
    with pytest.raises(DataLossError, match="does not hold keys"):
        read_removed(tmp_path / "a")
