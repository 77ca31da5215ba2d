"""Tables come back with all that decides what they do next, also in another number of shards."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from unit.trainer.checkpoint.trained import all_rows, silent

import hotrow
from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError
from hotrow.ops.table import Table
from hotrow.sealed_directory import read_manifest
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.metrics import BinaryMetrics

LIVELY = hotrow.TableConfig(
    "t",
    8,
    optimizer=hotrow.Adam(0.1),
    dtype="bfloat16",
    admission=hotrow.Admission(2),
    expiry=hotrow.Expiry(after_steps=6, sweep_steps=3),
)


class Model:
    """One table and no dense part."""

    def __init__(self, config, directory, full_every=4, keep=50):
        self.table = Table(config, seed=3)
        self.table.keep_tombstones()
        checkpoint = CheckpointConfig(full_every=full_every, keep=keep, asynchronous=False)
        self.directory = CheckpointDirectory(directory, keep)
        self.optimizer = SimpleNamespace(variables=[])
        self.writer = CheckpointWriter(self.directory, checkpoint, self, self.optimizer, silent)

    def tables(self):
        return {"t": self.table}

    def dense_variables(self):
        return []

    def train(self, first, last):
        """Looks keys of a window that moves up and updates them: old ones expire."""
        for step in range(first, last):
            random = np.random.default_rng(step)
            keys = 10 * step + random.integers(-60, 60, 100)
            self.table.lookup(keys, insert=True)
            self.table.update(keys, random.normal(size=(100, 8)).astype(np.float32))

    def save(self, step):
        self.writer.finish(Position(step), BinaryMetrics().state)
        return read_manifest(self.directory.of_step(step))

    def restore(self, report=silent):
        restored = self.directory.restore_newest(self, self.optimizer, report)
        assert restored is not None
        return restored.position.step

    def contents(self):
        arrays = [array.tolist() for array in all_rows(self.table)]
        return arrays, self.table.state(), self.table.digest()


@pytest.mark.parametrize("full_every", [1, 4])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_table_whose_rows_come_and_go_continues_as_if_nothing_had_happened(
    tmp_path, full_every, shards
):
    config = dataclasses.replace(LIVELY, shards=shards)
    straight = Model(config, tmp_path, full_every)
    removed = 0
    for step in range(1, 31):
        straight.train(step, step + 1)
        entry = straight.save(step)["tables"]["t"]
        removed += entry["removed_rows"]
        again = Model(config, tmp_path, full_every)
        again.train(100, 105)  # what it held before is replaced
        assert again.restore() == step
        assert again.contents() == straight.contents()
        assert entry["size"] == straight.table.size
        if step % 10 == 5:
            again.train(step + 1, step + 12)
            ahead = Model(config, tmp_path / "none")
            ahead.train(1, step + 12)
            assert again.contents() == ahead.contents()
    statistics = straight.table.statistics()
    assert statistics["expired"] > 50
    assert statistics["tombstones"] > 0
    assert (removed > 0) == (full_every > 1)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3)])
def test_a_table_comes_back_in_another_number_of_shards(tmp_path, before, after):
    written = Model(dataclasses.replace(LIVELY, shards=before), tmp_path)
    for step in range(1, 12):
        written.train(step, step + 1)
        written.save(step)
    lines = []
    again = Model(dataclasses.replace(LIVELY, shards=after), tmp_path)
    assert again.restore(lines.append) == 11
    assert lines == [
        f"table 't' was written with {before} shards and has {after} now: occurrences of keys "
        "without a row start anew"
    ]
    assert again.table.digest() == written.table.digest()
    assert again.table.step == written.table.step
    for one, other in zip(again.table.tombstones(), written.table.tombstones(), strict=True):
        np.testing.assert_array_equal(np.sort(one), np.sort(other))
    keys = np.arange(-50, 200)
    np.testing.assert_array_equal(again.table.lookup(keys), written.table.lookup(keys))


def test_a_state_that_is_damaged_under_a_good_checksum_leaves_an_empty_table(tmp_path, monkeypatch):
    written = Model(LIVELY, tmp_path)
    written.train(1, 5)
    monkeypatch.setattr(Table, "set_state", lambda self, state: self._native.set_state(state[:-1]))
    written.save(4)
    lines = []
    with pytest.raises(DataLossError, match="all 1 are damaged"):
        written.restore(lines.append)
    assert "the state of table t is damaged" in lines[0]
    assert written.table.size == 0
