"""Measures a model on a data file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotrow.config import RunConfig
from hotrow.trainer.data import BatchStream
from hotrow.trainer.metrics import BinaryMetrics, Quality
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.train_step import Forward

Floats = npt.NDArray[np.float32]


def predict_file(
    forward: Forward, config: RunConfig, path: str | Path
) -> Iterator[tuple[Floats, Floats]]:
    """Yields (labels [B], logits [B]) of the file's rows, in order; no table changes.

    Args:
        forward: from `make_forward`.
        config: the run's configuration; it says how to read the file and the batch size.
        path: a data file with labels.

    Raises:
        NotFoundError, DataError: the file is missing or malformed.
    """
    stream = BatchStream(path, config)
    with contextlib.closing(read_ahead(lambda: iter(stream))) as batches:
        for batch in batches:
            assert batch.labels is not None  # BatchStream requires labels
            yield batch.labels, forward(model_inputs(batch)).numpy()


def evaluate_file(forward: Forward, config: RunConfig, path: str | Path) -> Quality:
    """Returns AUC, logloss and calibration on a data file; see `predict_file`."""
    metrics = BinaryMetrics()
    for labels, logits in predict_file(forward, config, path):
        metrics.update(labels, logits)
    return metrics.result()
