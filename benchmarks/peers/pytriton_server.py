"""NVIDIA Triton around a Python callable (PyTriton), which runs the loaded signature.

python pytriton_server.py serve SAVED_MODEL PORT
python pytriton_server.py request ROWS COLUMNS FILE

The second writes what a client sends: a serialized ModelInferRequest.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

MOST_ROWS = 1024


def serve(path: str, port: str) -> None:
    """Serves until it is killed."""
    import tensorflow as tf
    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    loaded = tf.saved_model.load(path)
    signature = loaded.signatures["serving_default"]
    (shape,) = (spec.shape for spec in signature.structured_input_signature[1].values())

    @batch
    def score(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"scores": signature(x=tf.constant(x))["scores"].numpy()}

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    config = TritonConfig(
        grpc_address="127.0.0.1", grpc_port=int(port), allow_metrics=False, http_port=free
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="mlp",
            infer_func=score,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(shape[1],))],
            outputs=[Tensor(name="scores", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=MOST_ROWS),
        )
        triton.serve()


def write_request(rows: str, columns: str, file: str) -> None:
    """Writes a request of random rows."""
    from tritonclient.grpc import service_pb2

    values = np.random.default_rng(int(rows)).normal(size=(int(rows), int(columns)))
    request = service_pb2.ModelInferRequest(model_name="mlp")
    request.inputs.add(name="x", datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.astype(np.float32).tobytes())
    Path(file).write_bytes(request.SerializeToString())


if __name__ == "__main__":
    {"serve": serve, "request": write_request}[sys.argv[1]](*sys.argv[2:])
