"""The client of the online demo: answers events before the trainer gets them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import redis
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from hotrow.trainer.data.synthetic.drifting_clicks import COLUMNS, LABEL
from hotrow.trainer.metrics import BinaryMetrics

REQUESTS, EVENTS = "requests", "clicks"
"""Streams: what comes, and what the trainer gets once it is answered."""
MODELS = ("clicks", "hourly", "frozen")
WINDOW_SECONDS = 10.0
_AT_ONCE = 512
_WAIT_MILLIS = 50


class Answers:
    """Asks the servers for the score of each event, then hands the event on to the trainer.

    Args:
        port: of Redis.
        addresses: of the servers.

    Attributes:
        events: how many were answered.
        windows: (seconds since the first event, AUC by model) of each window.
        milliseconds: of each request for the model that is updated.
    """

    def __init__(self, port: int, addresses: Sequence[str]) -> None:
        self.events = 0
        self.windows: list[tuple[float, dict[str, float]]] = []
        self.milliseconds: list[float] = []
        self._redis = redis.Redis("127.0.0.1", port)
        self._channels = [grpc.insecure_channel(address) for address in addresses]
        self._servers = [
            prediction_service_pb2_grpc.PredictionServiceStub(c) for c in self._channels
        ]
        self._first = int(self._redis.xlen(EVENTS))
        self._last = "$"
        self._totals = {model: BinaryMetrics() for model in MODELS}
        self._window = {model: BinaryMetrics() for model in MODELS}
        self._began = self._window_began = time.monotonic()
        self._values: dict[str, set[str]] = {name: set() for name in COLUMNS}

    def step(self) -> None:
        """Answers the events that have come, or waits shortly."""
        found: Any = self._redis.xread({REQUESTS: self._last}, _AT_ONCE, _WAIT_MILLIS)
        if found:
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            self._last = entries[-1][0]
            self._answer([fields[b"event"] for _, fields in entries])
        now = time.monotonic()
        if now - self._window_began >= WINDOW_SECONDS:
            aucs = {model: metrics.result().auc for model, metrics in self._window.items()}
            self.windows.append((now - self._began, aucs))
            self._window = {model: BinaryMetrics() for model in MODELS}
            self._window_began = now

    @property
    def handed_on(self) -> int:
        """How many events the trainer's stream has."""
        return self._first + self.events

    def aucs(self) -> dict[str, float]:
        """Returns the AUC of all events so far, by model."""
        return {model: metrics.result().auc for model, metrics in self._totals.items()}

    def values(self) -> dict[str, list[str]]:
        """Returns the values that occurred, by column."""
        return {name: sorted(values) for name, values in self._values.items()}

    def rows(self, server: int) -> dict[str, npt.NDArray[np.float32]]:
        """Returns the rows float32 [N, D] that a server has of all values, by feature."""
        values = self.values()
        most = max(map(len, values.values()))
        padded = {name: [*own, *[own[0]] * (most - len(own))] for name, own in values.items()}
        reply = self._predict(server, "clicks", padded, "embeddings")
        lengths = {name: len(own) for name, own in values.items()}
        found = {}
        for feature, tensor in reply.outputs.items():
            column = column_of(feature)
            found[feature] = tf.make_ndarray(tensor)[: lengths[column]]
        return found

    def close(self) -> None:
        """Closes connections."""
        for channel in self._channels:
            channel.close()
        self._redis.close()

    def _answer(self, lines: Sequence[bytes]) -> None:
        events = [json.loads(line) for line in lines]
        columns = {name: [event[name] for event in events] for name in COLUMNS}
        labels = np.array([event[LABEL] for event in events], np.float32)
        for model in MODELS:
            began = time.monotonic()
            reply = self._predict(0, model, columns)
            if model == MODELS[0]:
                self.milliseconds.append((time.monotonic() - began) * 1e3)
            scores = np.clip(tf.make_ndarray(reply.outputs["scores"]), 0.0, 1.0)
            self._totals[model].update_probabilities(labels, scores)
            self._window[model].update_probabilities(labels, scores)
        pipeline = self._redis.pipeline(transaction=False)
        for line in lines:
            pipeline.xadd(EVENTS, {"event": line})
        pipeline.execute()
        self.events += len(events)
        for name, found in columns.items():
            self._values[name].update(found)

    def _predict(
        self, server: int, model: str, columns: Mapping[str, list[str]], signature: str = ""
    ) -> Any:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        for name, values in columns.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tf.string))
        return self._servers[server].Predict(request, timeout=30.0)


def column_of(feature: str) -> str:
    """Returns the column of a feature; a wide one has a name of its own."""
    return next(name for name in COLUMNS if name in feature)


def digest_of(rows: Mapping[str, npt.NDArray[np.float32]]) -> str:
    """Returns 16 hex digits that depend on all bits of the rows, by feature."""
    digest = hashlib.sha256()
    for feature in sorted(rows):
        digest.update(feature.encode())
        digest.update(np.ascontiguousarray(rows[feature], np.float32).tobytes())
    return digest.hexdigest()[:16]
