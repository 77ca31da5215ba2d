"""The base of all models: embeddings of sparse columns, and dense columns -> one logit a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

import hotrow
from hotrow.config import RunConfig
from hotrow.trainer.features import DensePreprocessor
from hotrow.trainer.model_inputs import ModelInputs
from hotrow.trainer.models.feature_tables import column_of
from hotrow.trainer.models.split import ALONE, Split

if TYPE_CHECKING:
    from hotrow.ops.table import Table


class Ranker(keras.Model):  # type: ignore[misc]
    """A model of binary labels.

    Call it with `hotrow.trainer.model_inputs`; it returns logits, float32 [B]. All its tables are
    in one embedding layer, so a step makes one lookup. A subclass computes `head`.

    Attributes:
        config: the run's configuration.
        embedding: the layer of all tables; None if there are no sparse columns.
        features: names of the embedding features, and the column whose keys each reads.
        preprocess: converts raw dense columns to inputs.
    """

    def __init__(
        self,
        config: RunConfig,
        features: list[hotrow.FeatureConfig],
        name: str,
        split: Split = ALONE,
    ) -> None:
        """Makes the embedding layer for `features`, named `<column>` or `<column>/wide`.

        With several ranks every call of the model is a collective.
        """
        super().__init__(name=name)
        self.config = config
        self.features = {feature.name: column_of(feature.name) for feature in features}
        self.preprocess = DensePreprocessor(config.features.dense_columns())
        self.embedding: hotrow.DistributedEmbedding | None = None
        if features:
            # Each table is used once a step, so the update is fused into backward.
            self.embedding = hotrow.DistributedEmbedding(
                split.of_features(features),
                seed=config.seed,
                update="backward",
                global_clipnorm=config.embeddings.global_clipnorm,
                name="embedding",
                ranks=split.ranks,
            )

    def tables(self) -> dict[str, Table]:
        """Returns the model's tables by name."""
        return {} if self.embedding is None else dict(self.embedding.tables)

    def dense_variables(self) -> list[Any]:
        """Returns every variable besides the tables and the layer's anchor, which has none."""
        anchor = None if self.embedding is None else self.embedding.anchor
        return [variable for variable in self.variables if variable is not anchor]

    def call(self, inputs: ModelInputs, training: bool = False) -> Any:
        """Returns logits, float32 [B]."""
        embedded = self.embed(inputs["sparse"], inputs.get("weights", {}), training)
        return self.logits(inputs["dense"], embedded, training)

    def embed(self, sparse: dict[str, Any], weights: dict[str, Any], training: bool = False) -> Any:
        """Returns the pooled embedding of each feature, float32 [B, D].

        Args:
            sparse: keys by column.
            weights: weights of the keys, for the columns that have them.
            training: insert unknown keys and let gradients update the rows.
        """
        if self.embedding is None:
            return {}
        keys = self._keys(sparse)
        return self.embedding(keys, weights=self._weights(weights) or None, training=training)

    def prefetch(self, window: Iterable[Mapping[str, Any]]) -> None:
        """Sends the keys of the next batches to the tables; see `DistributedEmbedding.prefetch`.

        Args:
            window: for each batch, keys by column (`sparse`) and their weights (`weights`).
        """
        if self.embedding is not None:
            batches = list(window)
            self.embedding.prefetch(
                [self._keys(batch["sparse"]) for batch in batches],
                [self._weights(batch.get("weights", {})) for batch in batches],
            )

    def push_all(self) -> None:
        """Sends pending gradients of replicas to the owners of rows; a collective."""
        if self.embedding is not None:
            self.embedding.push_all()

    def warm_up(self, sample: Iterable[Mapping[str, Any]], share: float) -> dict[str, int]:
        """Fills the caches of the tables with the most frequent rows of a sample.

        Returns, by table with a cache, how many rows were brought in.

        Args:
            sample: keys by column of each batch; see `DistributedEmbedding.warm_up`.
            share: largest share of each cache to fill.
        """
        if self.embedding is None:
            return {}
        return self.embedding.warm_up((self._keys(sparse) for sparse in sample), share)

    def _keys(self, sparse: Mapping[str, Any]) -> dict[str, Any]:
        """Returns keys by feature from keys by column."""
        return {feature: sparse[column] for feature, column in self.features.items()}

    def _weights(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Returns weights by feature from weights by column; some columns have none."""
        return {
            feature: weights[column]
            for feature, column in self.features.items()
            if column in weights
        }

    def logits(self, dense: Any, embedded: dict[str, Any], training: bool = False) -> Any:
        """Returns logits, float32 [B], from raw dense columns and pooled embeddings.

        This is the part of the model without lookups, with stock TensorFlow ops only, so that an
        export can combine it with other lookups.

        Args:
            dense: float32 [B, n], NaN where missing.
            embedded: float32 [B, D] by feature.
            training: apply dropout and batch normalisation as in training.
        """
        numbers = self.preprocess(dense)
        return tf.squeeze(self.head(numbers, embedded, training), axis=-1)

    def head(self, dense: Any, embedded: dict[str, Any], training: bool) -> Any:
        """Returns logits, float32 [B, 1], from preprocessed dense columns and embeddings."""
        raise NotImplementedError
