"""The graph of an exported version: three signatures over one scoring function.

- `serving_default` (Predict): the columns by name -> `scores` float32 [B], probabilities.
- `classify`: string [B] serialized tf.Examples in `inputs` -> `scores` float32 [B, 2], `classes`
  string [B, 2].
- `regress`: the same `inputs` -> `outputs` float32 [B], probabilities.
- `embeddings` (Predict): the columns by name -> the pooled embedding of each feature [B, D].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from hotrow.ops.lookup import Lookup, StandaloneLookup, StandaloneTable, StoreLookup
from hotrow.trainer.export.raw_inputs import RawInputs
from hotrow.trainer.models import Ranker

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"


class ServableModule(tf.Module):  # type: ignore[misc]
    """A model with its lookups replaced; what `tf.saved_model.save` writes.

    Args:
        model: gives the dense weights, which the module tracks, and the network.
        lookup: makes the lookup inside the graph being traced.
        tracked: what the lookup needs in the SavedModel: an asset or variables.
    """

    def __init__(self, model: Ranker, lookup: Callable[[], Lookup], tracked: Any) -> None:
        super().__init__(name="hotrow")
        self._model = _Untracked(model)
        self._make_lookup = lookup
        self._inputs = RawInputs(model.config)
        self.dense_weights = [variable.value for variable in model.dense_variables()]
        self.lookup_state = tracked

    def signatures(self) -> dict[str, Any]:
        """Returns the concrete functions by signature name."""
        specs = self._inputs.specs()
        examples = tf.TensorSpec([None], tf.string, "inputs")
        functions = {
            "serving_default": tf.function(self._predict).get_concrete_function(**specs),
            "classify": tf.function(self._classify).get_concrete_function(inputs=examples),
            "regress": tf.function(self._regress).get_concrete_function(inputs=examples),
        }
        if self._model.value.embedding is not None:
            functions["embeddings"] = tf.function(self._embeddings).get_concrete_function(**specs)
        return functions

    def _scores(self, named: dict[str, Any]) -> tf.Tensor:
        inputs = self._inputs.model_inputs(named)
        embedded = self._embed(inputs)
        return tf.sigmoid(self._model.value.logits(inputs["dense"], embedded))

    def _embed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        model = self._model.value
        if model.embedding is None:
            return {}
        with model.embedding.looking_up_with(self._make_lookup()):
            embedded: dict[str, Any] = model.embed(inputs["sparse"], inputs["weights"])
            return embedded

    def _predict(self, **named: Any) -> dict[str, Any]:
        return {"scores": self._scores(named)}

    def _embeddings(self, **named: Any) -> dict[str, Any]:
        return self._embed(self._inputs.model_inputs(named))

    def _regress(self, inputs: tf.Tensor) -> dict[str, Any]:
        return {"outputs": self._scores(self._inputs.parse_examples(inputs))}

    def _classify(self, inputs: tf.Tensor) -> dict[str, Any]:
        positive = self._scores(self._inputs.parse_examples(inputs))
        scores = tf.stack([1.0 - positive, positive], axis=1)
        classes = tf.tile(tf.constant([["0", "1"]]), [tf.shape(scores)[0], 1])
        return {"scores": scores, "classes": classes}


class _Untracked:
    """Keeps TensorFlow from following a reference into the SavedModel."""

    def __init__(self, value: Any) -> None:
        self.value = value


class TableVariables(tf.Module):  # type: ignore[misc]
    """The tables of a standalone export as variables."""

    def __init__(self, tables: Mapping[str, StandaloneTable]) -> None:
        super().__init__(name="tables")
        self.keys = [table.keys for table in tables.values()]
        self.rows = [table.rows for table in tables.values()]


def store_module(model: Ranker, manifest_path: str) -> ServableModule:
    """Returns the module whose lookups read the store that the manifest names."""
    asset = tf.saved_model.Asset(manifest_path)
    return ServableModule(model, lambda: StoreLookup(asset.asset_path), asset)


def standalone_module(model: Ranker, tables: Mapping[str, StandaloneTable]) -> ServableModule:
    """Returns the module that needs stock TensorFlow ops only."""
    return ServableModule(model, lambda: StandaloneLookup(tables), TableVariables(tables))


def save_module(module: ServableModule, directory: str) -> None:
    """Writes the SavedModel and gives its signatures the methods that TensorFlow Serving checks.

    `tf.saved_model.save` marks every signature as Predict.
    """
    tf.saved_model.save(module, directory, signatures=module.signatures())
    path = f"{directory}/saved_model.pb"
    saved = tf.compat.v1.SavedModel() if hasattr(tf.compat.v1, "SavedModel") else _saved_model()
    with open(path, "rb") as file:
        saved.ParseFromString(file.read())
    definitions = saved.meta_graphs[0].signature_def
    definitions["classify"].method_name = CLASSIFY_METHOD
    definitions["regress"].method_name = REGRESS_METHOD
    with open(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))


def _saved_model() -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    return saved_model_pb2.SavedModel()
