"""A trainer that learns online so that its rows count the events of their keys exactly.

Logistic regression with a huge negative weight, that of the key `z`, gives each event the
probability 0. Its label is 1, so the gradient of each of its rows is exactly -1 / `BATCH`. Learning
rates are powers of two, so a row is the number of its events and the bias is the number of steps,
both in units of `UNIT`. A request leaves `z` out, so the scores show all of these numbers, and all
of an answer must be those after one and the same batch.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from faults.counted_events import BATCH, COLUMNS, GROUPS, LATE_SECONDS
from integration.online.online_run import Work

from hotrow.trainer.data.encode import fingerprint_keys
from hotrow.trainer.trained_run import load_run

NAME = "clicks"
UNIT = 2.0**-16
_CONFIG = """\
name: {name}
data: {{format: csv, train: history.csv, batch_size: {batch}, label: y}}
features:
  sparse: {{columns: [{columns}, z], dim: 1, hash: true}}
tables:
  wide: {{optimizer: sgd, learning_rate: {row_rate}, initializer: zeros}}
  z/wide: {{optimizer: sgd, learning_rate: 1.0e-30, initializer: {{constant: -1000.0}}}}
model: {{arch: logistic}}
optimizer: {{name: sgd, learning_rate: {rate}}}
checkpoint: {{every_steps: 40, keep: 3}}
online:
  source: "{source}"
  time: time
  late_seconds: {late}
  late: dead_letter
  max_batch_seconds: 100000.0
  publish_seconds: 0.25
  frozen: false
  admin: "127.0.0.1:0"
  models: {folder}/models
  store: {store}
"""


class CountedRun(Work):
    """A folder with the configuration, runs and published models."""

    def __init__(self, folder: Path, store: str, source: str) -> None:
        super().__init__(folder, store, source)
        text = _CONFIG.format(
            name=NAME,
            batch=BATCH,
            columns=", ".join(COLUMNS),
            row_rate=BATCH * UNIT,
            rate=UNIT,
            source=source,
            late=LATE_SECONDS,
            folder=folder,
            store=store,
        )
        (folder / "clicks.yaml").write_text(text)
        lines = [",".join(("y", *COLUMNS, "z"))]
        lines += [f"{n},{','.join(f'{column}{n}' for column in COLUMNS)},z" for n in range(2)]
        (folder / "history.csv").write_text("\n".join(lines) + "\n")

    def versions(self) -> int:
        """Returns the number of the newest version: how many full exports there were."""
        folders = (self.folder / "models" / NAME).glob("*")
        return max((int(path.name) for path in folders if path.name.isdecimal()), default=0)

    def wrong_rows(self, counts: np.ndarray) -> list[str]:
        """Returns which rows of the store do not show these numbers of events, as text.

        Args:
            counts: of each group, int64 [GROUPS].
        """
        order = {column: np.argsort(keys) for column, keys in _KEYS.items()}
        keys = {f"{column}/wide": _KEYS[column][order[column]] for column in COLUMNS}
        wrong = []
        for name, (rows, there) in self.stored(keys).items():
            wanted = counts[order[name.partition("/")[0]]]
            units = np.where(there, rows.reshape(-1) / UNIT, 0.0)
            for at in np.flatnonzero((units != wanted) | (there != (wanted > 0))):
                wrong.append(f"store: {name}: {units[at]:g} in place of {wanted[at]}")
        return wrong

    def wrong_checkpoint(self, counts: np.ndarray, steps: int, run: str) -> list[str]:
        """Returns what the newest checkpoint of a run does not have exactly, as text.

        Args:
            counts: events of each group, int64 [GROUPS].
            steps: how many batches there were.
            run: the run directory.
        """
        wrong = []
        found = load_run(self.folder / run)
        events = int((found.position.online or {})["events"])
        if events != steps * BATCH:
            wrong.append(f"checkpoint: {events} events in place of {steps * BATCH}")
        (bias,) = (v.numpy() for v in found.model.dense_variables() if v.name == "bias")
        if bias[0] != steps * UNIT:
            wrong.append(f"checkpoint: the bias is {bias[0] / UNIT:g} in place of {steps}")
        tables = self.tables(run)
        for column in COLUMNS:
            table = tables[f"{column}/wide"]
            wanted = {int(k): int(n) for k, n in zip(_KEYS[column], counts, strict=True) if n}
            units = (table["weights"].view(np.float32).reshape(-1) / UNIT).tolist()
            rows = dict(zip(table["keys"].tolist(), units, strict=True))
            looked_up = dict(zip(table["keys"].tolist(), table["counts"].tolist(), strict=True))
            wrong += [f"checkpoint: {column}: {rows} != {wanted}"] if rows != wanted else []
            wrong += [f"counts: {column}: {looked_up}"] if looked_up != wanted else []
        return wrong

    def wrong_dead_letters(self, wanted: set[str], run: str) -> list[str]:
        """Returns whether a run's dead letters are not `CountedEvents.refused`, as text."""
        found = set()
        for file in (self.folder / run).glob("dead_letters*"):
            for line in file.read_text().splitlines():
                try:
                    letter = json.loads(line)
                except ValueError:
                    return [f"dead letters: a line is torn: {line}"]
                found.add(letter["place"].get("id") or str(letter["event"]["time"]))
        return [] if found == wanted else [f"dead letters: {sorted(found ^ wanted)[:5]} differ"]


_KEYS = {
    column: fingerprint_keys(
        pa.array([f"{column}{group}" for group in range(GROUPS)]), f"{column}\x1f".encode()
    )
    for column in COLUMNS
}
