"""The model of the last full export, which learns nothing, scored for comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np

from hotrow.config import RunConfig
from hotrow.errors import NotFoundError
from hotrow.trainer.agreement import agreed
from hotrow.trainer.batch_feed import Batch
from hotrow.trainer.checkpoint.restore import restore
from hotrow.trainer.checkpoint.stored import StoredCheckpoint, open_chain
from hotrow.trainer.models import build_model
from hotrow.trainer.models.split import Split
from hotrow.trainer.online.progressive import ProgressiveMetrics
from hotrow.trainer.train_step import make_forward

FROZEN_EVERY = 4
"""Of so many batches, one is scored."""


class FrozenModel:
    """Tables and weights of a checkpoint, in the memory of this process. A collective.

    Args:
        config: the run's configuration.
        split: the split of the tables over ranks.
        checkpoint: directory of the checkpoint.
        window_seconds: length of a window of the metrics.
        report: called with lines for the user.

    Attributes:
        checkpoint: its directory.
        metrics: of the scored events.

    Raises:
        NotFoundError: the checkpoint is gone.
        DataLossError, FailedPreconditionError: it is damaged, or has another configuration.
    """

    def __init__(
        self,
        config: RunConfig,
        split: Split,
        checkpoint: str,
        window_seconds: float,
        report: Callable[[str], None],
    ) -> None:
        self.checkpoint = checkpoint
        self.metrics = ProgressiveMetrics(window_seconds)
        self._ranks = split.ranks
        self._chain: list[StoredCheckpoint] = agreed(
            split.ranks, "checkpoint of the export", lambda: _opened(Path(checkpoint))
        )
        model = build_model(config, split)
        restore(self._chain, model, None, report, split.ranks)
        self._model = model
        self._forward = make_forward(model, config)
        self._scores = True

    @classmethod
    def missing(cls, checkpoint: str, window_seconds: float) -> Self:
        """Returns a model that scores nothing, in place of one that cannot be read."""
        model = cls.__new__(cls)
        model.checkpoint = checkpoint
        model.metrics = ProgressiveMetrics(window_seconds)
        model._scores = False
        return model

    def score(self, batch: Batch, newest: float) -> None:
        """Scores a batch of all ranks. A collective.

        Args:
            batch: this rank's part.
            newest: time of the newest event, Unix seconds.
        """
        if not self._scores:
            return
        logits = self._forward(batch.inputs).numpy()
        parts = [logits, batch.labels, *([] if batch.weights is None else [batch.weights])]
        if self._ranks.size > 1:
            what = "scores of the last export"
            parts = [np.concatenate(self._ranks.all_gather(part, what)) for part in parts]
        weights = parts[2] if len(parts) > 2 else None
        self.metrics.add(parts[1], parts[0], weights, newest)


def _opened(checkpoint: Path) -> list[StoredCheckpoint]:
    if not checkpoint.exists():
        raise NotFoundError(f"{checkpoint} does not exist any more")
    return open_chain(checkpoint)
