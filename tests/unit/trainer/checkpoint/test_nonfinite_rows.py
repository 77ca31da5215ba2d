"""Rows that hold a NaN: checkpoints count and report them, and restore them as they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from unit.trainer.checkpoint.trained import Trained, all_rows, config_of

from hotrow.sealed_directory import MANIFEST, read_manifest, seal_of
from hotrow.trainer.checkpoint import Position


def spoil(trained, name, rows):
    """Writes a NaN into the first weight of some rows of a table, as older versions did."""
    table = trained.model.tables()[name]
    keys, lines, clocks, counts, places = all_rows(table)
    lines[:rows, :4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    table.import_rows(keys, lines, clocks, counts, places)


@pytest.fixture
def spoiled(tmp_path):
    said = []
    trained = Trained(tmp_path, report=said.append)
    trained.train(0, 3)
    name, other = list(trained.model.tables())[:2]
    spoil(trained, name, 3)
    return trained, said, name, other


def test_a_checkpoint_counts_its_rows_that_are_not_finite(spoiled):
    trained, said, name, other = spoiled
    path = trained.save(3)
    entries = read_manifest(path)["tables"]
    assert entries[name]["nonfinite_rows"] == 3
    assert entries[other]["nonfinite_rows"] == 0
    (outcome,) = trained.writer.outcomes()
    assert outcome.nonfinite_rows == {name: 3}
    assert outcome.metrics()["nonfinite_rows"] == 3
    assert said == [
        f"checkpoint of step 3: rows that hold a NaN or an infinity: 3 of table {name!r}; see "
        "`platform inspect`"
    ]
    trained.writer.finish(Position(4), trained.metrics.state)
    assert len(said) == 1  # the same number is not reported again


def test_a_checkpoint_of_an_older_version_has_no_such_count(spoiled, tmp_path):
    trained, _, _, _ = spoiled
    path = trained.save(3)
    facts = read_manifest(path)
    for entry in facts["tables"].values():
        del entry["nonfinite_rows"]
        for key in ("updates", "nonfinite_updates"):
            del entry["statistics"][key]
    facts["seal"] = seal_of(facts)
    (path / MANIFEST).write_text(json.dumps(facts))
    restored = Trained(tmp_path, config_of())
    assert restored.restore() == Position(3)
    restored.assert_equals(trained)


def test_a_row_that_is_nan_stays_and_its_updates_are_counted(spoiled):
    trained, _, name, _ = spoiled
    table = trained.model.tables()[name]
    keys, lines, *_ = all_rows(table)
    broken = np.isnan(table.line_layout.weights(lines)).any(axis=1)
    assert broken.sum() == 3
    counted = table.statistics()["nonfinite_updates"]
    table._native.update(keys, np.ones((len(keys), table.dim), np.float32), 0.1)
    assert table.statistics()["nonfinite_updates"] == counted + 3
    after_keys, after, *_ = all_rows(table)
    np.testing.assert_array_equal(after_keys, keys)
    np.testing.assert_array_equal((after == lines).all(axis=1), broken)
