"""DLRM (Naumov et al., 2019): explicit pairwise interactions between two networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from hotrow.config import DlrmConfig, RunConfig
from hotrow.trainer.models.feature_tables import model_features
from hotrow.trainer.models.ranker import Ranker
from hotrow.trainer.models.split import ALONE, Split
from hotrow.trainer.models.tower import Tower, TowerOptions, linear


def pairwise_dots(vectors: Any) -> Any:
    """Returns the dot products of all pairs of different vectors of a row.

    Args:
        vectors: float32 [B, F, D].

    Returns:
        float32 [B, F * (F - 1) / 2]: the lower triangle without the diagonal, row by row.
    """
    count = vectors.shape[1]
    rows, columns = np.tril_indices(count, k=-1)
    dots = tf.matmul(vectors, vectors, transpose_b=True)
    flat = tf.reshape(dots, [-1, count * count])
    return tf.gather(flat, (rows * count + columns).astype(np.int32), axis=1)


class Dlrm(Ranker):
    """Bottom network over dense columns -> interactions with the embeddings -> top network.

    The top network reads the bottom network's output and all pairwise dot products. Without dense
    columns there is no bottom network, and the top one reads only the products of the embeddings.
    """

    def __init__(self, config: RunConfig, split: Split = ALONE) -> None:
        """Makes the model of `config`, whose `model.arch` is `dlrm`."""
        sizes = config.model
        assert isinstance(sizes, DlrmConfig)
        super().__init__(config, model_features(config), "dlrm", split)
        options = TowerOptions(config.seed, sizes.dropout, sizes.l2, sizes.batch_norm)
        self.bottom: Tower | None = None
        if config.features.dense_columns():
            self.bottom = Tower(sizes.bottom, "bottom", options)
        self.top = Tower(sizes.top, "top", options)
        self.output_layer = linear(1, "top_output", options)

    def head(self, dense: Any, embedded: dict[str, Any], training: bool) -> Any:
        """Returns logits, float32 [B, 1]."""
        vectors = [embedded[name] for name in self.features]
        first = []
        if self.bottom is not None:
            first = [self.bottom(dense, training=training)]
        dots = pairwise_dots(tf.stack([*first, *vectors], axis=1))
        top = self.top(tf.concat([*first, dots], axis=1), training=training)
        return self.output_layer(top)
