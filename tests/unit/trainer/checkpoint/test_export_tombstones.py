"""Tombstones of a run: none before an export, then those since the exported checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hotrow
from hotrow.errors import FailedPreconditionError
from hotrow.ops.export.changed_rows import changed_rows
from hotrow.ops.ranks import LONE
from hotrow.ops.table import Table
from hotrow.sealed_directory import sealing
from hotrow.trainer.checkpoint.export_tombstones import ExportTombstones
from hotrow.trainer.checkpoint.exported import EXPORTED, exported_clocks, note_exported


class Run:
    """A table, and a folder of checkpoints of which only the manifests exist."""

    def __init__(self, folder, source=None, **expiry):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        options = hotrow.Expiry(after_steps=1, sweep_steps=1, **expiry)
        self.table = Table(hotrow.TableConfig("t", 2, expiry=options), seed=1)
        self.lines = []
        self.tombstones = ExportTombstones(
            folder, {"t": self.table}, self.lines.append, LONE, source
        )

    def train(self, *steps):
        for step in steps:
            keys = np.array([step], np.int64)
            self.table.lookup(keys, insert=True)
            self.table.update(keys, np.ones((1, 2), np.float32))

    def checkpoint(self, exported=False):
        step = self.table.step
        path = self.folder / f"step-{step:08d}"
        with sealing(path, {"tables": {"t": {"step": step}}}):
            pass
        if exported:
            note_exported(self.folder, step)

    def kept(self):
        return self.table.tombstones()[0].tolist()


def test_a_run_keeps_tombstones_from_its_first_export_on(tmp_path):
    run = Run(tmp_path / "checkpoints")
    run.train(1, 2, 3, 4)
    run.tombstones.update()
    run.train(5)
    assert (run.kept(), run.table.forgotten_step) == ([], 5)
    run.checkpoint(exported=True)
    run.tombstones.update()
    run.train(6, 7)
    assert (run.kept(), run.table.forgotten_step) == ([4, 5], 5)
    # An export of step 7 needs none of those before it, one that goes on from step 5 all.
    run.checkpoint(exported=True)
    run.tombstones.update()
    assert run.kept() == [4, 5]
    run.train(8, 9)
    run.checkpoint(exported=True)
    run.tombstones.update()
    assert (run.kept(), run.table.forgotten_step) == ([6, 7], 7)
    removed = [piece.removed.tolist() for piece in changed_rows(run.table, "float32", 7)]
    assert removed[-1] == [6, 7]
    with pytest.raises(FailedPreconditionError, match="has forgotten which keys expired up to"):
        list(changed_rows(run.table, "float32", 5))


def test_a_run_that_started_from_an_exported_one_keeps_them_too(tmp_path):
    run = Run(tmp_path / "checkpoints")
    run.train(1)
    run.checkpoint()
    later = Run(tmp_path / "later", source=run.folder)
    later.tombstones.update()
    later.train(1, 2, 3)
    assert later.kept() == []
    note_exported(run.folder, 1)
    later.tombstones.update()
    later.train(4, 5)
    assert later.kept() == [2, 3]


def test_too_many_tombstones_are_reported_once(tmp_path):
    run = Run(tmp_path / "checkpoints", tombstones=3)
    run.train(1)
    run.checkpoint(exported=True)
    run.tombstones.update()
    run.train(*range(2, 20))
    run.tombstones.update()
    run.tombstones.update()
    (line,) = run.lines
    assert line.startswith("warning: more than 3 keys of table 't' expired since the last export")
    assert run.table.statistics()["tombstones"] <= 3
    with pytest.raises(FailedPreconditionError, match="make a full export"):
        list(changed_rows(run.table, "float32", 1))


def test_nothing_is_forgotten_for_an_export_whose_checkpoint_is_damaged(tmp_path):
    run = Run(tmp_path / "checkpoints")
    run.train(1, 2, 3)
    run.checkpoint(exported=True)
    assert exported_clocks(run.folder) == {"t": 3}
    manifest = run.folder / "step-00000003" / "manifest.json"
    manifest.write_text("{}")
    assert exported_clocks(run.folder) == {}
    (run.folder / EXPORTED).write_text(json.dumps({"steps": []}))
    assert exported_clocks(run.folder) is None
