"""A model that trains and is exported while faults happen; its answers show what was exported."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
from integration.serving.marked_rows import KEYS, TEMPORARY, row_of

import hotrow
from hotrow.errors import HotrowError
from hotrow.store.cuts import CutRecord

NAME = "m"
_DIM = 8
_PAUSE = 0.3  # between exports


@dataclass
class Exports:
    """What the exporter did.

    Attributes:
        ended: how many committed their step.
        failed: messages of exports that failed.
        full: how often an export asked for a full one, and got it.
    """

    ended: int = 0
    failed: list[str] = field(default_factory=list)
    full: int = 0


class Trainer:
    """Trains `marked_rows`' model step by step, by gradients, and exports each step.

    After step c, the row of a key and all dense weights show c as `row_of` says.

    Args:
        base: folder of models.
        url: of the store.

    Attributes:
        began: of the schedule, by `time.monotonic`.
        reports: lines about exports and faults, with seconds since then.
    """

    def __init__(self, base: Path, url: str) -> None:
        self._base, self._url = base, url
        table = hotrow.TableConfig(
            "items", _DIM, optimizer=hotrow.SGD(1.0), initializer=hotrow.Constant(0.0)
        )
        embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig("id", table)])
        key = keras.Input((1,), dtype="int64", name="id")
        row = embedding({"id": key})["id"]
        self._mark = keras.layers.Dense(_DIM, kernel_initializer="zeros", bias_initializer="zeros")
        marks = self._mark(row)
        outputs = {
            "row_low": keras.ops.min(row, axis=1),
            "row_high": keras.ops.max(row, axis=1),
            "mark_low": keras.ops.min(marks, axis=1),
            "mark_high": keras.ops.max(marks, axis=1),
        }
        self.model = keras.Model({"id": key}, outputs)
        self.model.compile(optimizer=keras.optimizers.SGD(1.0))
        self.model.optimizer.build(self.model.trainable_variables)
        self._table = embedding.tables["items"]
        self._learn(np.arange(KEYS + TEMPORARY, dtype=np.int64), 0)
        self.step = 0
        self.exports = Exports()
        self.began = time.monotonic()
        self.reports: list[str] = []
        self.path = base / NAME
        hotrow.export_model(self.model, base, NAME, store=url)

    def train(self) -> None:
        """Makes one step."""
        self.step += 1
        keys = [key for key in range(KEYS) if (key + self.step) % 3 == 0]
        self._learn(np.array(keys, np.int64), self.step)
        self._table.remove(np.array([KEYS + self.step], np.int64))
        self._mark.bias.assign(np.full(_DIM, self.step, np.float32))
        self.model.optimizer.iterations.assign(self.step)

    def export(self, wait_seconds: float = 0.0) -> bool:
        """Exports the step incrementally, fully if that is asked for; returns whether it did."""
        self.report("export begins")
        try:
            hotrow.export_changes(
                self.model, self._base, NAME, wait_seconds=wait_seconds, committed=self._committed
            )
        except HotrowError as err:
            self.report(f"{type(err).__name__}: {err}")
            self.exports.failed.append(f"step {self.step}: {type(err).__name__}: {err}")
            if "full export" not in str(err):
                return False
            try:
                hotrow.export_model(self.model, self._base, NAME, store=self._url)
            except HotrowError as again:
                self.exports.failed.append(f"step {self.step}: {type(again).__name__}: {again}")
                return False
            self.exports.full += 1
        self.exports.ended += 1
        self.report("export has ended")
        return True

    def run(self, ended: threading.Event) -> None:
        """Trains and exports until the event."""
        while not ended.is_set():
            self.train()
            while not self.export() and not ended.is_set():
                time.sleep(_PAUSE)
            ended.wait(_PAUSE)

    def report(self, line: str) -> None:
        """Adds a line to the reports."""
        seconds = time.monotonic() - self.began
        self.reports.append(f"{seconds:.2f} s: step {self.step}: {line}")

    def _committed(self, cut: CutRecord) -> None:
        self.report(f"cut {cut.version:016x} is committed")

    def _learn(self, keys: np.ndarray, step: int) -> None:
        wanted = np.array([row_of(key, step) for key in keys.tolist()], np.float32)
        now = self._table.lookup(keys, insert=True)
        self._table.update(keys, now - wanted[:, None])
