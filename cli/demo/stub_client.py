"""Scores rows with TensorFlow Serving's own client stub, as any of its users would.

Usage: stub_client.py HOST:PORT MODEL REQUEST.json; prints the scores as JSON. Imports nothing of
Hotrow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def main(server: str, model: str, request_file: str) -> None:
    """Sends one Predict request."""
    rows = json.loads(Path(request_file).read_text())["instances"]
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, value in rows[0].items():
        dtype = tf.string if isinstance(value, str) else tf.float32
        tensor = tf.make_tensor_proto([row[name] for row in rows], dtype=dtype)
        request.inputs[name].CopyFrom(tensor)
    with grpc.insecure_channel(server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=30)
    json.dump(tf.make_ndarray(response.outputs["scores"]).tolist(), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
