"""Waiting rows leave by key, deadline and arrival, wherever they wait."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotrow.errors import UnavailableError
from hotrow.trainer.online import waiting_file
from hotrow.trainer.online.waiting_file import WaitingFile
from hotrow.trainer.online.waiting_row import WaitingRow
from hotrow.trainer.online.waiting_rows import WaitingRows, rows_of


def number_of(row: WaitingRow) -> int:
    number: int = row.rows.column("number")[row.place].as_py()
    return number


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("memory", "at_once"), [(10**6, 4096), (0, 2), (5, 3), (20, 1)], ids=str)
def test_rows_leave_as_from_a_plain_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, memory: int, at_once: int
) -> None:
    monkeypatch.setattr(waiting_file, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(waiting_file, "_BLOCKS_IN_MEMORY", 2)
    rng = random.Random(seed)
    waiting = WaitingRows(memory, lambda: WaitingFile(tmp_path / "waiting"))
    plain: list[tuple[int, str, float, int]] = []  # arrival, key, deadline, read
    arrivals, newest = 0, 0.0
    for read in range(40):
        count = rng.randrange(6)
        keys = [rng.choice("abcdefgh") for _ in range(count)]
        deadlines = [newest + rng.randrange(20) for _ in range(count)]
        rows = pa.RecordBatch.from_pydict({"number": list(range(arrivals, arrivals + count))})
        waiting.begin(read, rows, keys, np.array(deadlines, dtype=np.float64))
        for place, (key, deadline) in enumerate(zip(keys, deadlines, strict=True)):
            waiting.add(place)
            plain.append((arrivals + place, key, deadline, read))
        arrivals += count
        waiting.settle()
        for _ in range(rng.randrange(4)):
            action = rng.randrange(4)
            if action == 0 and plain:
                oldest = waiting.take_oldest()
                assert (number_of(oldest), oldest.read) == (plain[0][0], plain[0][3])
                del plain[0]
            elif action == 1:
                key = rng.choice("abcdefgh")
                mine = [row for row in plain if row[1] == key]
                found = waiting.take_of(key)
                assert (found and number_of(found)) == (mine[-1][0] if mine else None)
                plain = [row for row in plain if row not in mine[-1:]]
            else:
                newest += rng.randrange(5)
                over = sorted((row for row in plain if row[2] < newest), key=lambda r: (r[2], r[0]))
                if over:
                    assert waiting.next_deadline <= over[0][2]
                assert [number_of(row) for row in waiting.take_expired(newest)] == [
                    row[0] for row in over
                ]
                plain = [row for row in plain if row not in over]
            assert len(waiting) == len(plain)
    assert arrivals > 50
    waiting.close()
    assert not (tmp_path / "waiting").exists()


def test_rows_come_in_the_order_in_which_they_left() -> None:
    one = pa.RecordBatch.from_pydict({"x": [0, 1, 2]})
    two = pa.RecordBatch.from_pydict({"x": [10, 11]})
    order = [WaitingRow(two, 1, 1), WaitingRow(one, 2, 0), WaitingRow(two, 0, 1)]
    assert rows_of(order).to_pydict() == {"x": [11, 2, 10]}


def test_a_file_of_an_earlier_process_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "waiting").write_text("of a process that was killed")
    waiting = WaitingFile(tmp_path / "waiting")
    assert waiting.take_expired(1e9) == []
    waiting.close()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"none/waiting cannot be used: .*most_disk_rows: 0"):
        WaitingFile(tmp_path / "none" / "waiting")
