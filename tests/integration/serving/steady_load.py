"""Clients that predict the same requests all the time, and what they are answered."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from waiting import wait_until

DEFAULT_ROWS = "x-hotrow-default-rows"
# Between two requests of a client, so that the clients leave the servers some time.
_PAUSE_SECONDS = 0.005
_TIMEOUT_SECONDS = 30.0


def requests_of(path: Path, count: int, rows: int) -> list[predict_pb2.PredictRequest]:
    """Returns requests with `rows` rows each of a file of `trained_run`, without a model yet."""
    lines = path.read_text().split("\n")
    requests = []
    for number in range(count):
        fields = [line.split("\t") for line in lines[number * rows : (number + 1) * rows]]
        request = predict_pb2.PredictRequest()
        for i in (1, 2, 3):
            numbers = np.array([float(row[i] or "nan") for row in fields], np.float32)
            request.inputs[f"I{i}"].CopyFrom(tf.make_tensor_proto(numbers))
            words = np.array([row[13 + i].encode() for row in fields], object)
            request.inputs[f"C{i}"].CopyFrom(tf.make_tensor_proto(words))
        requests.append(request)
    return requests


@dataclass(frozen=True)
class Answer:
    """The outcome of a request.

    Attributes:
        request: its number.
        began, seconds: of `time.monotonic`.
        scores: None if it failed.
        code, text: of a failure.
        default_rows: the answer's report of default rows.
    """

    request: int
    began: float
    seconds: float
    scores: tuple[float, ...] | None
    code: grpc.StatusCode | None = None
    text: str = ""
    default_rows: str | None = None


def ask(
    server: Any, requests: Sequence[predict_pb2.PredictRequest], number: int, model: str = ""
) -> Answer:
    """Sends one of the requests to a server."""
    request = predict_pb2.PredictRequest()
    request.CopyFrom(requests[number])
    request.model_spec.name = model or server.model
    began = time.monotonic()
    try:
        reply, call = server.prediction.Predict.with_call(request, timeout=_TIMEOUT_SECONDS)
    except grpc.RpcError as err:
        taken = time.monotonic() - began
        return Answer(number, began, taken, None, err.code(), err.details() or "")
    taken = time.monotonic() - began
    default_rows = dict(call.trailing_metadata() or ()).get(DEFAULT_ROWS)
    scores = tuple(reply.outputs["scores"].float_val)
    return Answer(number, began, taken, scores, default_rows=default_rows)


class SteadyLoad:
    """Client threads between `with` and its end, each with all requests in an order of its own."""

    def __init__(
        self, server: Any, requests: Sequence[predict_pb2.PredictRequest], clients: int = 4
    ) -> None:
        self._server, self._requests = server, requests
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._threads = [
            threading.Thread(target=self._predict, args=[seed], daemon=True)
            for seed in range(clients)
        ]

    def __enter__(self) -> SteadyLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def answers(self, since: float = 0.0) -> list[Answer]:
        """Returns the answers so far to requests that began at this time or later."""
        with self._lock:
            return [answer for answer in self._answers if answer.began >= since]

    def failures(self, since: float = 0.0) -> list[Answer]:
        """Returns the failed ones."""
        return [answer for answer in self.answers(since) if answer.scores is None]

    def wait_until(self, done: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until `done()`, at most so long."""
        wait_until(done, lambda: self.answers()[-3:], seconds)

    def _predict(self, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(self._requests))
        for number in itertools.cycle(order.tolist()):
            answer = ask(self._server, self._requests, number)
            with self._lock:
                self._answers.append(answer)
            if self._ended.wait(_PAUSE_SECONDS):
                return
