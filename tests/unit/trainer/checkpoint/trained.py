"""A small model with dropout and batch normalisation that trains, is saved and restored."""

from __future__ import annotations

import numpy as np

from hotrow.config import parse_config
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.data import Batch, Keys
from hotrow.trainer.metrics import BinaryMetrics
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.models import build_model
from hotrow.trainer.train_step import make_optimizer, make_train_step


def config_of(dim=4, hidden=(8,), checkpoint=None, **tables):
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
            "checkpoint": {"asynchronous": False, **(checkpoint or {})},
        }
    )


def silent(line):
    raise AssertionError(f"unexpected report: {line}")


class Trained:
    """A model, its optimizer, its metrics, a writer of its checkpoints and a way to train it."""

    def __init__(self, directory, config=None, report=silent):
        self.config = config or config_of()
        self.model = build_model(self.config)
        self.optimizer = make_optimizer(self.config.optimizer, self.model)
        self.metrics = BinaryMetrics()
        self._step = make_train_step(self.model, self.optimizer, self.config)
        self.move_to(directory, report)

    def move_to(self, directory, report=silent):
        """Reads and writes checkpoints in a directory from now on."""
        self.directory = CheckpointDirectory(directory, self.config.checkpoint.keep)
        self.writer = CheckpointWriter(
            self.directory, self.config.checkpoint, self.model, self.optimizer, report
        )
        return self

    def train(self, first, last, keys=50):
        """Trains steps `first` to `last` - 1, each on 16 rows of its own random generator."""
        for number in range(first, last):
            random = np.random.default_rng(number)
            batch = Batch(
                random.normal(size=(16, 1)).astype(np.float32),
                {name: Keys(random.integers(-keys, keys, 16)) for name in ("C1", "C2")},
                (random.random(16) < 0.5).astype(np.float32),
            )
            logits = self._step(model_inputs(batch), batch.labels).numpy()
            self.metrics.update(batch.labels, logits)

    def save(self, step, **position):
        """Writes a checkpoint of `step` and returns its directory; it must succeed."""
        self.writer.finish(Position(step, **position), self.metrics.state)
        return self.directory.of_step(step)

    def restore(self, report=silent):
        """Restores the newest good checkpoint and returns its position."""
        restored = self.directory.restore_newest(self.model, self.optimizer, report)
        if restored is None:
            return None
        self.metrics.set_state(restored.metrics)
        self.writer.continue_from(restored.position, restored.lineage)
        return restored.position

    def rows(self):
        """Returns rows, counts and clocks of all tables, by table and in the order of keys."""
        return {name: sorted_rows(table) for name, table in self.model.tables().items()}

    def state(self):
        """Returns all that training changes."""
        variables = [v.numpy() for v in self.model.dense_variables()]
        variables += [v.numpy() for v in self.optimizer.variables]
        tables = {
            n: (t.digest(), t.step, t.size, t.state()) for n, t in self.model.tables().items()
        }
        return variables, tables, self.metrics.result()

    def assert_equals(self, other):
        assert_equal_states(self.state(), other.state())


def assert_equal_states(one, other):
    for value, expected in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(value, expected)
    assert one[1:] == other[1:]


def all_rows(table):
    """Returns keys, lines, clocks, counts and places of every row, in the order of a snapshot."""
    snapshot = table.snapshot("all")
    pieces = []
    while len((piece := snapshot.read(10**5))[0]) or not pieces:
        pieces.append(piece)
    snapshot.close()
    return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


def sorted_rows(table):
    rows = all_rows(table)
    order = np.argsort(rows[0])
    return [array[order] for array in rows]


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])
