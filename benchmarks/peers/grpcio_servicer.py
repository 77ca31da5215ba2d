"""The plainest Predict server in Python: a grpcio servicer over a loaded signature.

python grpcio_servicer.py SAVED_MODEL PORT
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):  # type: ignore[misc]
    """Answers Predict with `serving_default`."""

    def __init__(self, path: str) -> None:
        self._loaded = tf.saved_model.load(path)
        self._signature = self._loaded.signatures["serving_default"]

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Returns the outputs."""
        inputs = {
            alias: tf.constant(tf.make_ndarray(proto)) for alias, proto in request.inputs.items()
        }
        response = predict_pb2.PredictResponse()
        for alias, value in self._signature(**inputs).items():
            response.outputs[alias].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response


def main(path: str, port: str) -> None:
    """Serves until it is killed."""
    unbounded = [("grpc.max_receive_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(4 * (os.cpu_count() or 1)), options=unbounded)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Servicer(path), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
