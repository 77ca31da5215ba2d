"""Logistic regression over all columns."""

from __future__ import annotations

from typing import Any

from hotrow.config import LogisticConfig, RunConfig
from hotrow.trainer.models.feature_tables import model_features
from hotrow.trainer.models.linear_part import LinearPart
from hotrow.trainer.models.ranker import Ranker
from hotrow.trainer.models.split import ALONE, Split


class Logistic(Ranker):
    """logit = one weight a key, summed, + weighted dense columns + bias."""

    def __init__(self, config: RunConfig, split: Split = ALONE) -> None:
        """Makes the model of `config`, whose `model.arch` is `logistic`."""
        assert isinstance(config.model, LogisticConfig)
        super().__init__(config, model_features(config), "logistic", split)
        self.linear = LinearPart(len(config.features.dense_columns()), config.model.l2)

    def head(self, dense: Any, embedded: dict[str, Any], training: bool) -> Any:
        """Returns logits, float32 [B, 1]."""
        return self.linear(dense, list(embedded.values()))
