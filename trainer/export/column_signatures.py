"""The signatures of the trainer's models.

- `serving_default` (Predict): the columns by name -> `scores` float32 [B], probabilities.
- `classify`: string [B] serialized tf.Examples in `inputs` -> `scores` float32 [B, 2], `classes`
  string [B, 2].
- `regress`: the same `inputs` -> `outputs` float32 [B], probabilities.
- `embeddings` (Predict): the columns by name -> the pooled embedding of each feature [B, D].
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hotrow.ops.export import Signature
from hotrow.trainer.export.raw_inputs import RawInputs
from hotrow.trainer.models import Ranker

CLASSES = ("0", "1")


def column_signatures(model: Ranker) -> dict[str, Signature]:
    """Returns the signatures of a model by key."""
    columns = RawInputs(model.config)

    def scores(named: dict[str, Any]) -> tf.Tensor:
        inputs = columns.model_inputs(named)
        embedded = model.embed(inputs["sparse"], inputs["weights"])
        return tf.sigmoid(model.logits(inputs["dense"], embedded))

    def predict(named: dict[str, Any]) -> dict[str, Any]:
        return {"scores": scores(named)}

    def regress(named: dict[str, Any]) -> dict[str, Any]:
        return {"outputs": scores(columns.parse_examples(named["inputs"]))}

    def classify(named: dict[str, Any]) -> dict[str, Any]:
        positive = scores(columns.parse_examples(named["inputs"]))
        both = tf.stack([1.0 - positive, positive], axis=1)
        return {
            "scores": both,
            "classes": tf.tile(tf.constant([CLASSES]), [tf.shape(both)[0], 1]),
        }

    def embeddings(named: dict[str, Any]) -> dict[str, Any]:
        inputs = columns.model_inputs(named)
        pooled: dict[str, Any] = model.embed(inputs["sparse"], inputs["weights"])
        return pooled

    examples = {"inputs": tf.TensorSpec([None], tf.string)}
    signatures = {
        "serving_default": Signature(predict, columns.specs()),
        "classify": Signature(classify, examples, "classify"),
        "regress": Signature(regress, examples, "regress"),
    }
    if model.embedding is not None:
        signatures["embeddings"] = Signature(embeddings, columns.specs())
    return signatures
