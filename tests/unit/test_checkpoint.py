"""Checkpoints: exact, checked, the newest good one wins."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hotrow.config import parse_config
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.trainer import table_files
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.data import Batch, Keys
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.models import build_model
from hotrow.trainer.train_step import make_optimizer, make_train_step


def config_of(dim=4, hidden=(8,), **tables):
    return parse_config(
        {
            "name": "m",
            "data": {"format": "criteo", "train": "/none"},
            "features": {
                "dense": {"columns": ["I1"], "standardize": True},
                "sparse": {"columns": ["C1", "C2"], "dim": dim},
            },
            "tables": tables,
            "model": {"arch": "wide_deep", "hidden": hidden, "dropout": 0.3, "batch_norm": True},
        }
    )


class Trained:
    """A model, its optimizer and a way to train them."""

    def __init__(self, config):
        self.model = build_model(config)
        self.optimizer = make_optimizer(config.optimizer, self.model)
        self._step = make_train_step(self.model, self.optimizer, config)

    def train(self, first, last):
        for number in range(first, last):
            random = np.random.default_rng(number)
            batch = Batch(
                random.normal(size=(16, 1)).astype(np.float32),
                {name: Keys(random.integers(-50, 50, 16)) for name in ("C1", "C2")},
                (random.random(16) < 0.5).astype(np.float32),
            )
            self._step(model_inputs(batch), batch.labels)

    def state(self):
        variables = [v.numpy() for v in self.model.dense_variables()]
        variables += [v.numpy() for v in self.optimizer.variables]
        tables = {n: (t.digest(), t.step, t.size) for n, t in self.model.tables().items()}
        return variables, tables

    def assert_equals(self, other):
        own, others = self.state(), other.state()
        for one, two in zip(own[0], others[0], strict=True):
            np.testing.assert_array_equal(one, two)
        assert own[1] == others[1]


def silent(line):
    raise AssertionError(f"unexpected report: {line}")


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    straight = Trained(config_of())
    straight.train(0, 6)
    first = Trained(config_of())
    first.train(0, 4)
    position = Position(step=4, epoch=1, batch=2)
    CheckpointDirectory(tmp_path / "c", 3).write(first.model, first.optimizer, position)
    second = Trained(config_of())
    second.train(0, 1)  # what it held before is replaced
    restored = CheckpointDirectory(tmp_path / "c", 3).restore_newest(
        second.model, second.optimizer, silent
    )
    assert restored == position
    second.assert_equals(first)
    second.train(4, 6)
    second.assert_equals(straight)


def test_clocks_and_optimizer_states_survive(tmp_path):
    trained = Trained(config_of())
    trained.train(0, 3)
    directory = CheckpointDirectory(tmp_path, 3)
    directory.write(trained.model, trained.optimizer, Position(3))
    again = Trained(config_of())
    directory.restore_newest(again.model, again.optimizer, silent)

    def rows(table):
        keys, lines, clocks = (
            np.concatenate(parts) for parts in zip(*table.export_batches(), strict=True)
        )
        order = np.argsort(keys)
        return keys[order], lines[order], clocks[order]

    for name, table in trained.model.tables().items():
        for one, other in zip(rows(table), rows(again.model.tables()[name]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_table_larger_than_a_file_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "FILE_BYTES", 200)
    trained = Trained(config_of())
    trained.train(0, 3)
    directory = CheckpointDirectory(tmp_path, 3)
    path = directory.write(trained.model, trained.optimizer, Position(3))
    assert len(list((path / "tables").glob("C1-*.safetensors"))) > 5
    again = Trained(config_of())
    directory.restore_newest(again.model, again.optimizer, silent)
    again.assert_equals(trained)


def test_the_newest_checkpoints_are_kept(tmp_path):
    trained = Trained(config_of())
    directory = CheckpointDirectory(tmp_path, 2)
    for step in range(1, 5):
        trained.train(step, step + 1)
        directory.write(trained.model, trained.optimizer, Position(step))
    assert directory.steps() == [3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def two_checkpoints(tmp_path):
    trained = Trained(config_of())
    directory = CheckpointDirectory(tmp_path, 3)
    for step in (1, 2):
        trained.train(step, step + 1)
        directory.write(trained.model, trained.optimizer, Position(step))
    return directory


@pytest.mark.parametrize(
    "file",
    [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "tables/C1-00000.safetensors",
        "tables/C2%2Fwide-00000.safetensors",
    ],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_with_a_message(two_checkpoints, file):
    flip_a_bit(two_checkpoints.of_step(2) / file)
    again = Trained(config_of())
    lines = []
    position = two_checkpoints.restore_newest(again.model, again.optimizer, lines.append)
    assert position == Position(1)
    assert len(lines) == 1
    assert "checkpoint of step 2 is not usable" in lines[0]
    assert file in lines[0]


def test_a_damaged_checkpoint_is_written_anew(two_checkpoints):
    flip_a_bit(two_checkpoints.of_step(2) / "model.safetensors")
    trained = Trained(config_of())
    trained.train(1, 3)
    two_checkpoints.write(trained.model, trained.optimizer, Position(2))
    again = Trained(config_of())
    assert two_checkpoints.restore_newest(again.model, again.optimizer, silent) == Position(2)


def test_no_checkpoint_at_all_is_none(tmp_path):
    trained = Trained(config_of())
    directory = CheckpointDirectory(tmp_path / "none", 3)
    assert directory.restore_newest(trained.model, trained.optimizer, silent) is None
    assert not (tmp_path / "none").exists()


def test_damaged_checkpoints_only_are_an_error(two_checkpoints):
    for step in (1, 2):
        (two_checkpoints.of_step(step) / "manifest.json").unlink()
    trained = Trained(config_of())
    with pytest.raises(DataLossError, match=r"no usable checkpoint in .*: all 2 are damaged"):
        two_checkpoints.restore_newest(trained.model, trained.optimizer, lambda line: None)


def test_a_checkpoint_of_another_format_is_passed_over(two_checkpoints):
    directory = two_checkpoints.of_step(2)
    facts = json.loads((directory / "manifest.json").read_text())
    facts["format"] = 99
    (directory / "manifest.json").write_text(json.dumps(facts))
    trained = Trained(config_of())
    lines = []
    assert two_checkpoints.restore_newest(trained.model, None, lines.append) == Position(1)


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (config_of(dim=8), "table 'C1' was written with dim 4 and lines of 8 floats"),
        (config_of(hidden=(9,)), "has shape"),
        (config_of(hidden=(8, 8)), "use the configuration of the run"),
        (config_of(default={"optimizer": "sgd"}), "lines of 8 floats, the model has 4 and 4"),
    ],
    ids=["other dim", "other width", "other depth", "other optimizer"],
)
def test_a_checkpoint_of_another_configuration_is_refused(two_checkpoints, other, line):
    trained = Trained(other)
    with pytest.raises(FailedPreconditionError, match=line):
        two_checkpoints.restore_newest(trained.model, trained.optimizer, silent)
