"""A fixed set of rows that the trainer scores for each cut."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import agreed
from hotrow.trainer.data import Batch, BatchStream
from hotrow.trainer.metrics import StreamingAuc
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.online.publishing.gate import CanaryScores
from hotrow.trainer.train_step import Forward

MOST_ROWS = 4096
"""Rows that are scored; each cut waits for them."""


class Canary:
    """The rows of `online.canary`, scored by all ranks together.

    Args:
        config: the run's configuration.
        forward: from `make_forward`.
        ranks: the ranks; each scores all rows with its part of the tables.

    Raises:
        HotrowError: the file cannot be read.
    """

    def __init__(self, config: RunConfig, forward: Forward, ranks: Ranks) -> None:
        self._forward = forward
        self.batch: Batch | None = None
        path = config.online.canary
        if path is not None:
            self.batch = agreed(ranks, "canary rows", lambda: _read(config, path))
            self._inputs = model_inputs(self.batch)

    def score(self) -> CanaryScores | None:
        """Returns the scores of the rows by the model as it is; None without a canary."""
        if self.batch is None:
            return None
        logits = np.asarray(self._forward(self._inputs), np.float64)
        scores: npt.NDArray[np.float32] = (1 / (1 + np.exp(-logits))).astype(np.float32)
        auc = StreamingAuc()
        assert self.batch.labels is not None  # streams require labels
        finite = np.where(np.isnan(logits), 0.0, logits)
        auc.update(self.batch.labels, finite)
        return CanaryScores(scores, float(scores.mean()), auc.result())


def _read(config: RunConfig, path: str) -> Batch:
    stream = BatchStream(path, config, batch_size=MOST_ROWS, limit=MOST_ROWS)
    batch = next(iter(stream), None)
    if batch is None:
        raise InvalidArgumentError(f"online.canary: {path} has no rows")
    return batch
