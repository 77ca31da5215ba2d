"""The graph of an exported version: three signatures over one scoring function.

- `serving_default` (Predict): the columns by name -> `scores` float32 [B], probabilities.
- `classify`: string [B] serialized tf.Examples in `inputs` -> `scores` float32 [B, 2], `classes`
  string [B, 2].
- `regress`: the same `inputs` -> `outputs` float32 [B], probabilities.
- `embeddings` (Predict): the columns by name -> the pooled embedding of each feature [B, D].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from hotrow.ops.lookup import Lookup, StandaloneLookup, StandaloneTable, StoreLookup
from hotrow.trainer.export.raw_inputs import RawInputs
from hotrow.trainer.models import Ranker

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
        names = self.argument_names()
        columns = {names[n]: tf.TensorSpec(s.shape, s.dtype, names[n]) for n, s in specs.items()}
        examples = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        functions = {
            "serving_default": (self._predict, columns),
            "classify": (self._classify, examples),
            "regress": (self._regress, examples),
        }
        if self._model.value.embedding is not None:
            functions["embeddings"] = (self._embeddings, columns)
        return {
            name: tf.function(function, autograph=False).get_concrete_function(**arguments)
            for name, (function, arguments) in functions.items()
        }

    def argument_names(self) -> dict[str, str]:
        """Returns the argument of the graph's functions for each named input.

        It is the name itself where that is a Python identifier. `save_module` gives the
        signatures the names as they are; only the functions that `tf.saved_model.load` returns
        take these.
        """
        taken: dict[str, str] = {}
        for name in self._inputs.specs():
            legal = re.sub(r"\W", "_", name, flags=re.ASCII)
            legal = legal if legal.isidentifier() else f"_{legal}"
            while legal in taken.values():
                legal += "_"
            taken[name] = legal
        return taken

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

    def _named(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: arguments[legal] for name, legal in self.argument_names().items()}

    def _predict(self, **arguments: Any) -> dict[str, Any]:
        return {"scores": self._scores(self._named(arguments))}

    def _embeddings(self, **arguments: Any) -> dict[str, Any]:
        return self._embed(self._inputs.model_inputs(self._named(arguments)))

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


def save_module(module: ServableModule, directory: Path) -> None:
    """Writes the SavedModel and completes its signatures.

    `tf.saved_model.save` marks every signature as Predict, and cannot name an input like a column
    that is no Python identifier.
    """
    tf.saved_model.save(module, str(directory), signatures=module.signatures())
    path = directory / "saved_model.pb"
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(path.read_bytes())
    definitions = saved.meta_graphs[0].signature_def
    definitions["classify"].method_name = CLASSIFY_METHOD
    definitions["regress"].method_name = REGRESS_METHOD
    for signature in ("serving_default", "embeddings"):
        if signature not in definitions:
            continue
        inputs = definitions[signature].inputs
        for name, argument in module.argument_names().items():
            if name != argument:
                inputs[name].CopyFrom(inputs[argument])
                del inputs[argument]
    path.write_bytes(saved.SerializeToString(deterministic=True))
