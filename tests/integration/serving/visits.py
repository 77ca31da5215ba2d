"""A model that counts its own runs, to see which requests it got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


class Visits(tf.Module):
    """Counts its own runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])  # type: ignore[untyped-decorator]
    def visit(self, x: Any) -> Any:
        with tf.control_dependencies([self.count.assign_add(tf.size(x, tf.int64))]):
            return {"count": self.count.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])  # type: ignore[untyped-decorator]
    def look(self, x: Any) -> Any:
        return {"count": self.count.read_value() + 0 * tf.size(x, tf.int64)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])  # type: ignore[untyped-decorator]
    def classify(self, inputs: Any) -> Any:
        with tf.control_dependencies([self.count.assign_add(1000 * tf.size(inputs, tf.int64))]):
            return {"scores": tf.zeros([tf.size(inputs), 1])}


def save_visits(path: Path) -> Path:
    """Writes a version; returns its path."""
    module = Visits()
    signatures = {
        "serving_default": module.visit,
        "look": module.look,
        "classify": module.classify,
    }
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def visits_of(server: Any) -> int:
    """Returns the count of the model `visits`, without a visit."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "visits"
    request.model_spec.signature_name = "look"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(1, np.float32)))
    return int(server.prediction.Predict(request, timeout=30).outputs["count"].int64_val[0])
