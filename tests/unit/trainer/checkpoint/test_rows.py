"""Rows of checkpoints read from their files: full ones, increments, damage."""

from __future__ import annotations

import shutil
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.trainer.checkpoint.written_checkpoint import write

from hotrow.errors import DataLossError
from hotrow.trainer.checkpoint import rows as checkpoint_rows
from hotrow.trainer.checkpoint.rows import CheckpointRows


def rows_of(*keys, clock=1):
    return [(key, [clock, 0, 0, 0], clock, key % 7 + 1) for key in keys]


def read(checkpoint, table="C1"):
    """Returns {key: clock}; a row that comes twice is a failure."""
    found, passed = {}, []
    for rows in checkpoint.read(table, passed.append):
        assert len(rows.keys) == len(rows.lines) == len(rows.clocks) == len(rows.counts)
        for key, line, clock in zip(rows.keys, rows.lines, rows.clocks, strict=True):
            assert int(key) not in found
            assert line.view(np.float32)[0] == clock
            found[int(key)] = int(clock)
    assert sum(passed) == checkpoint.rows_to_read(table)
    return found


def test_all_files_of_a_full_checkpoint_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_rows, "PIECE_ROWS", 2)
    path = write(tmp_path, 4, {"C1": rows_of(*range(-5, 5)), "C2,wide": rows_of(7)})
    checkpoint = CheckpointRows(path)
    assert read(checkpoint) == dict.fromkeys(range(-5, 5), 1)
    assert read(checkpoint, "C2,wide") == {7: 1}
    sizes = {p.name: p.stat().st_size for p in (path / "tables").iterdir()}
    for table, start in (("C1", "C1"), ("C2,wide", "C2%2Cwide")):
        expected = sum(size for name, size in sizes.items() if name.startswith(start))
        assert checkpoint.disk_bytes(table) == expected


def test_a_table_without_rows_has_none(tmp_path):
    assert read(CheckpointRows(write(tmp_path, 1, {"C1": []}))) == {}


def test_increments_replace_remove_and_bring_back_rows(tmp_path):
    write(tmp_path, 1, {"C1": rows_of(1, 2, 3, 4)})
    write(tmp_path, 2, {"C1": rows_of(2, 9, clock=2)}, {"C1": [3, 4]}, [1], sizes={"C1": 3})
    path = write(tmp_path, 3, {"C1": rows_of(4, clock=3)}, {"C1": [9]}, [1, 2], sizes={"C1": 3})
    assert read(CheckpointRows(path)) == {1: 1, 2: 2, 4: 3}
    assert read(CheckpointRows(tmp_path / "step-00000002")) == {1: 1, 2: 2, 9: 2}


keys = st.sets(st.integers(-8, 8))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
@given(steps=st.lists(st.tuples(keys, keys), min_size=1, max_size=4))
def test_a_chain_is_read_as_if_its_parts_had_been_restored_in_turn(tmp_path, steps):
    shutil.rmtree(tmp_path)
    model: dict[int, int] = {}
    for number, (updated, removed) in enumerate(steps, 1):
        parents = list(range(1, number))
        gone = sorted((removed & model.keys()) - updated) if parents else []
        model = {key: clock for key, clock in model.items() if key not in gone}
        model |= dict.fromkeys(updated, number)
        rows = {"C1": rows_of(*updated, clock=number)}
        write(tmp_path, number, rows, {"C1": gone}, parents, {"C1": len(model)})
    assert read(CheckpointRows(tmp_path / f"step-{len(steps):08d}")) == model


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["manifest.json", "tables/C1-00000.safetensors", "tables/C1.state"]
)
@pytest.mark.parametrize("step", [1, 2], ids=["of the base", "of the increment"])
def test_a_damaged_file_is_found_before_anything_is_read(tmp_path, name, step):
    write(tmp_path, 1, {"C1": rows_of(1)})
    write(tmp_path, 2, {"C1": rows_of(2)}, {}, [1])
    path = tmp_path / f"step-{step:08d}" / name
    flip_a_bit(path)
    with pytest.raises(DataLossError, match=r"damaged") as caught:
        CheckpointRows(tmp_path / "step-00000002")
    assert str(path) in str(caught.value)


def test_an_increment_without_its_base_is_damaged(tmp_path):
    write(tmp_path, 1, {"C1": rows_of(1)})
    path = write(tmp_path, 2, {"C1": rows_of(2)}, {}, [1])
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(DataLossError, match=r"step-00000001/manifest.json is missing"):
        CheckpointRows(path)


def test_another_parent_than_the_one_it_was_written_on_is_refused(tmp_path):
    write(tmp_path, 1, {"C1": rows_of(1)})
    path = write(tmp_path, 2, {"C1": rows_of(2)}, {}, [1])
    shutil.rmtree(tmp_path / "step-00000001")
    write(tmp_path, 1, {"C1": rows_of(3)})
    with pytest.raises(DataLossError, match=r"builds on another step-00000001"):
        CheckpointRows(path)


def test_rows_that_are_missing_are_reported(tmp_path):
    path = write(tmp_path, 1, {"C1": rows_of(1, 2)}, sizes={"C1": 3})
    with pytest.raises(DataLossError, match=r"table 'C1' has 2 rows, 3 were written"):
        read(CheckpointRows(path))


def test_memory_grows_with_the_increments_and_not_with_the_table(tmp_path):
    rows = 60_000
    write(tmp_path, 1, {"C1": rows_of(*range(rows))}, rows_a_file=1000)
    increment = {"C1": rows_of(*range(100), clock=2)}
    path = write(tmp_path, 2, increment, {"C1": [500]}, [1], {"C1": rows - 1})
    checkpoint = CheckpointRows(path)
    tracemalloc.start()
    try:
        found = sum(len(piece.keys) for piece in checkpoint.read("C1", lambda _: None))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == rows - 1
    assert peak < 8 * rows  # not even its keys fit
