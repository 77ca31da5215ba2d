"""Clients of a server of `counted_run.py`'s model, and whether their answers are possible."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from faults.counted_events import COLUMNS
from faults.counted_run import UNIT
from tensorflow_serving.apis import predict_pb2

_NO_KEY = b"none"
_TOLERANCE = 0.2  # of a unit; the scores show hundredths


@dataclass(frozen=True)
class Answer:
    """What a client saw.

    Attributes:
        began, ended: of the request, by `time.monotonic`.
        steps: the number of batches that the bias shows; None: the request failed.
        groups: that were asked for.
        counts: int64 [groups, columns].
        problem: what no batch can have left, or why the request failed; "": nothing.
        stale: the value of `x-hotrow-stale-rows`; None: the answer does not have it.
    """

    began: float
    ended: float
    steps: int | None
    groups: Sequence[int] = ()
    counts: np.ndarray | None = None
    problem: str = ""
    stale: str | None = None


def ask(server: Any, groups: Sequence[int], timeout: float = 30.0) -> Answer:
    """Requests the bias, and the rows of all keys of groups, in one batch."""
    rows = [(group, column) for group in groups for column in COLUMNS]
    request = predict_pb2.PredictRequest()
    request.model_spec.name = server.model
    for column in COLUMNS:
        keys = [_NO_KEY]
        keys += [f"{c}{group}".encode() if c == column else _NO_KEY for group, c in rows]
        request.inputs[column].CopyFrom(tf.make_tensor_proto(keys))
    request.inputs["z"].CopyFrom(tf.make_tensor_proto([_NO_KEY] * (len(rows) + 1)))
    began = time.monotonic()
    try:
        reply, call = server.prediction.Predict.with_call(request, timeout=timeout)
    except grpc.RpcError as err:
        text = f"{err.code().name}: {err.details()}"
        return Answer(began, time.monotonic(), None, problem=text)
    ended = time.monotonic()
    stale = dict(call.trailing_metadata() or ()).get("x-hotrow-stale-rows")
    scores = tf.make_ndarray(reply.outputs["scores"]).astype(np.float64).reshape(-1)
    units = np.log(scores / (1.0 - scores)) / UNIT
    whole = np.rint(units)
    problem = ""
    if not (np.abs(units - whole) < _TOLERANCE).all():
        problem = f"no whole numbers: {units[np.abs(units - whole) >= _TOLERANCE][:4]}"
    counts = (whole[1:] - whole[0]).astype(np.int64).reshape(len(groups), len(COLUMNS))
    return Answer(began, ended, int(whole[0]), groups, counts, problem, stale)


def wrong_in(answer: Answer, history: np.ndarray) -> str:
    """Returns what is impossible in an answer; "": nothing.

    Args:
        answer: of a request that did not fail.
        history: the number of events of each group after each batch, int64 [steps + 1, groups].
    """
    assert answer.steps is not None
    assert answer.counts is not None
    if answer.problem:
        return answer.problem
    if not 0 <= answer.steps < len(history):
        return f"{answer.steps} batches, and {len(history) - 1} were sent"
    wanted = history[answer.steps][list(answer.groups)]
    for column, name in enumerate(COLUMNS):
        for at in np.flatnonzero(answer.counts[:, column] != wanted):
            key = f"{name}{answer.groups[at]}"
            return (
                f"after {answer.steps} batches, {key} shows {answer.counts[at, column]} events in "
                f"place of {wanted[at]}"
            )
    return ""
