"""`Events`: labelled events in the order of their times, as files and as requests. N events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
from tensorflow_serving.apis import predict_pb2

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TIME, LABEL = "ts", "click"
_INT64 = 9


@dataclass(frozen=True, eq=False)
class Events:
    """N events.

    Attributes:
        times: float64 [N], Unix seconds, rising; events of one time belong together.
        labels: int64 [N], 0 or 1.
        columns: int64 [N] each, keys by column.
        truth: float64 [N], logits of the model that drew the labels; None: not known.
    """

    times: Floats
    labels: Ints
    columns: dict[str, Ints]
    truth: Floats | None = None

    def __len__(self) -> int:
        return len(self.times)

    def part(self, first: int, last: int) -> Events:
        """Returns the events first to last - 1."""
        own = slice(first, last)
        columns = {name: keys[own] for name, keys in self.columns.items()}
        truth = None if self.truth is None else self.truth[own]
        return Events(self.times[own], self.labels[own], columns, truth)

    def between(self, begin: float, end: float) -> Events:
        """Returns the events with begin <= time < end, Unix seconds."""
        first, last = np.searchsorted(self.times, [begin, end], side="left")
        return self.part(int(first), int(last))

    def json_lines(self) -> bytes:
        """Returns a JSON object a line, as `file:` reads it."""
        names = [TIME, LABEL, *self.columns]
        form = ", ".join(f'"{name}": %s' for name in names)
        form = "{" + form.replace("%s", "%.3f", 1) + "}\n"
        values = [self.times.tolist(), self.labels.tolist()]
        values += [keys.tolist() for keys in self.columns.values()]
        return "".join(form % row for row in zip(*values, strict=True)).encode()

    def write_csv(self, path: Path) -> None:
        """Writes a file that `data.train` names."""
        named = {TIME: self.times, LABEL: self.labels, **self.columns}
        pa.csv.write_csv(pa.table({n: pa.array(v) for n, v in named.items()}), path)

    def request(self, model: str) -> predict_pb2.PredictRequest:
        """Returns a request for the scores of all events."""
        message = predict_pb2.PredictRequest()
        message.model_spec.name = model
        for name, keys in self.columns.items():
            tensor = message.inputs[name]
            tensor.dtype = _INT64
            tensor.tensor_shape.dim.add(size=len(keys))
            tensor.tensor_content = keys.astype("<i8").tobytes()
        return message


def joined(parts: Sequence[Events]) -> Events:
    """Returns the events of all parts, which follow each other; at least one part."""
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    truths = [part.truth for part in parts if part.truth is not None]
    return Events(
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.labels for part in parts]),
        columns,
        np.concatenate(truths) if truths else None,
    )
