"""Clients that leave before they are answered, while cuts come: others see every cut whole."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.cut_servers import CACHE
from integration.serving.marked_rows import KEYS, TEMPORARY, MarkedModel, cut_of, marked_load
from integration.serving.server_processes import data_plane_of
from tensorflow_serving.apis import predict_pb2
from waiting import wait_until

CUTS = 12
FEWEST = 50  # clients of each kind that left
SPARE = 20  # connections of those that stay
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    with contextlib.closing(MarkedModel(tmp_path / "models", redis_server.url)) as made:
        yield made


class Leavers:
    """Clients that send requests and leave: cancelled calls, short deadlines, closed sockets."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._ended = threading.Event()
        kinds = (self._cancel, self._give_up, self._hang_up)
        self.left = dict.fromkeys((kind.__name__ for kind in kinds), 0)
        self._threads = [
            threading.Thread(target=self._run, args=(kind, number), daemon=True)
            for number, kind in enumerate(kinds)
        ]

    def __enter__(self) -> Leavers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, leave: Callable[[random.Random], None], number: int) -> None:
        chance = random.Random(number)
        while not self._ended.wait(0.005):
            leave(chance)
            self.left[leave.__name__] += 1

    def _cancel(self, chance: random.Random) -> None:
        call = self._server.prediction.Predict.future(self._request(chance), timeout=30.0)
        time.sleep(chance.uniform(0.0, 0.005))
        call.cancel()

    def _give_up(self, chance: random.Random) -> None:
        with contextlib.suppress(grpc.RpcError):
            self._server.prediction.Predict(
                self._request(chance), timeout=chance.uniform(0.0005, 0.005)
            )

    def _hang_up(self, chance: random.Random) -> None:
        keys = chance.sample(range(KEYS + TEMPORARY), 40)
        body = json.dumps({"inputs": {"id": [[key] for key in keys]}}).encode()
        head = (
            f"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        client = socket.create_connection(("127.0.0.1", self._server.rest_port))
        with client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.sendall(head.encode() + body[: chance.randint(0, 2 * len(body))])
            time.sleep(chance.uniform(0.0, 0.005))

    @staticmethod
    def _request(chance: random.Random) -> predict_pb2.PredictRequest:
        keys = np.array(chance.sample(range(KEYS + TEMPORARY), 40), np.int64)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        request.inputs["id"].CopyFrom(tf.make_tensor_proto(keys[:, None]))
        return request


def test_they_hold_up_no_cut_and_leave_nothing_open(model: MarkedModel, start_server: Any) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    assert cut_of(server) == 0
    files = Path(f"/proc/{data_plane_of(server)}/fd")
    before = len(list(files.iterdir()))
    with marked_load(server) as load:
        with Leavers(server) as leavers:
            for number in range(1, CUTS + 1):
                cut = model.write(number)
                load.wait_for(number)
                if number % 3 == 0:
                    model.wait_until_noted(cut)
                    model.fold()
            wait_until(lambda: min(leavers.left.values()) > FEWEST, lambda: leavers.left)
        model.write(CUTS + 1)
        load.wait_for(CUTS + 1)
    assert load.failures() == []
    assert load.cuts() == set(range(CUTS + 2))
    wait_until(lambda: len(list(files.iterdir())) < before + SPARE, lambda: list(files.iterdir()))
