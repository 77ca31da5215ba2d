"""Wide & Deep (Cheng et al., 2016): a linear model beside a deep network, trained jointly."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hotrow.config import RunConfig, WideDeepConfig
from hotrow.trainer.models.feature_tables import model_features
from hotrow.trainer.models.linear_part import LinearPart
from hotrow.trainer.models.ranker import Ranker
from hotrow.trainer.models.split import ALONE, Split
from hotrow.trainer.models.tower import Tower, TowerOptions, linear


class WideDeep(Ranker):
    """logit = linear part + output of the deep part.

    Wide: a linear model with one weight a key of each sparse column, and the dense columns. Deep:
    embeddings and dense columns, concatenated, through hidden layers to one output. Each sparse
    column has a deep table of its dim and a wide table of width 1; both use the same keys.
    """

    def __init__(self, config: RunConfig, split: Split = ALONE) -> None:
        """Makes the model of `config`, whose `model.arch` is `wide_deep`."""
        sizes = config.model
        assert isinstance(sizes, WideDeepConfig)
        super().__init__(config, model_features(config), "wide_deep", split)
        columns = config.features.sparse_columns()
        self.deep_names = [column.name for column in columns]
        self.wide_names = [column.wide_table for column in columns]
        options = TowerOptions(config.seed, sizes.dropout, sizes.l2, sizes.batch_norm)
        self.linear = LinearPart(len(config.features.dense_columns()), sizes.l2)
        self.deep = Tower(sizes.hidden, "deep", options)
        self.output_layer = linear(1, "deep_output", options, use_bias=False)

    def head(self, dense: Any, embedded: dict[str, Any], training: bool) -> Any:
        """Returns logits, float32 [B, 1]; the linear part has the only output bias."""
        wide = self.linear(dense, [embedded[name] for name in self.wide_names])
        inputs = tf.concat([dense, *(embedded[name] for name in self.deep_names)], axis=1)
        return wide + self.output_layer(self.deep(inputs, training=training))
