"""The clients of incremental_export.py: the same request all the time, until standard input ends.

    python -m peers.cut_clients HOST:PORT MODEL CLIENTS < /dev/null

Prints a line when each client has had answers, and at the end a JSON array of [time of a request,
time of its answer, the answer's cut], in seconds of CLOCK_MONOTONIC. The cut of a failed request is
null.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

ROWS = 128
_PAUSE_SECONDS = 0.005


def request_of(model: str, seed: int) -> predict_pb2.PredictRequest:
    """Returns a request for some of the first keys."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    keys = request.inputs["key"]
    keys.dtype = types_pb2.DT_INT64
    keys.tensor_shape.dim.add(size=ROWS)
    keys.int64_val.extend(np.random.default_rng(seed).integers(0, 100_000, ROWS).tolist())
    return request


def main(address: str, model: str, clients: int) -> None:
    """Sends requests until standard input ends, and prints what they got."""
    ended = threading.Event()
    answers: list[tuple[float, float, float | None]] = []

    def run(number: int) -> None:
        request = request_of(model, number)
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            while not ended.wait(_PAUSE_SECONDS):
                began = time.monotonic()
                try:
                    cut = predict(request, timeout=30).outputs["cut"].float_val[0]
                except grpc.RpcError:
                    cut = None
                answers.append((began, time.monotonic(), cut))

    threads = [threading.Thread(target=run, args=[n]) for n in range(clients)]
    for thread in threads:
        thread.start()
    while len(answers) < 10 * clients:
        time.sleep(0.01)
    print("ready", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
