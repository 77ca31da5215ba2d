"""Traffic for the lookups of a server: requests by name, and pages of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from peers.online_model import DENSE, TABLES, keys_of
from peers.workload import zipf_ranks
from tensorflow_serving.apis import predict_pb2

from hotrow import _native
from hotrow.store.spec import Generation

# Of traffic `99`, as shares of a table's rows: those that are always cached, and never.
HOT, COLD = 0.005, 0.5


class Traffic:
    """Keys of requests. T tables, R rows each, B samples, N requests."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._random = np.random.default_rng(5)

    def zipf(self, count: int) -> Any:
        """Returns ranks int64 [count], Zipf over all rows."""
        return zipf_ranks(self._random, self.rows, count)

    def ninety_nine(self, count: int) -> Any:
        """Returns ranks int64 [count]: Zipf over the hottest rows, and 1 % of cold ones."""
        ranks = zipf_ranks(self._random, max(1, int(self.rows * HOT)), count)
        cold = self._random.random(count) < 0.01
        ranks[cold] = self.cold(int(cold.sum()))
        return ranks

    def cold(self, count: int) -> Any:
        """Returns ranks int64 [count] of rows that no cache has."""
        return self._random.integers(int(self.rows * COLD), self.rows, count)


def write_requests(
    path: Path, model: str, requests: int, batch: int, draw: Callable[[int], Any]
) -> None:
    """Writes requests as rotating_load reads them; keys of a table are `draw`n together."""
    keys = np.stack([keys_of(draw(requests * batch)) for _ in range(TABLES)])
    keys = keys.reshape(TABLES, requests, batch)
    dense = np.random.default_rng(1).normal(size=(batch, DENSE)).astype(np.float32)
    with path.open("wb") as file:
        for number in range(requests):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = model
            for t in range(TABLES):
                column = request.inputs[f"C{t}"]
                column.dtype = 9  # DT_INT64
                column.tensor_shape.dim.add().size = batch
                column.tensor_content = keys[t, number].tobytes()
            column = request.inputs["numbers"]
            column.dtype = 1  # DT_FLOAT
            column.tensor_shape.dim.add().size = batch
            column.tensor_shape.dim.add().size = DENSE
            column.tensor_content = dense.tobytes()
            data = request.SerializeToString()
            file.write(struct.pack("<Q", len(data)))
            file.write(data)


def write_names(path: Path, groups: list[list[bytes]]) -> None:
    """Writes names as bare_reads reads them."""
    with path.open("wb") as file:
        for group in groups:
            file.write(struct.pack("<I", len(group)))
            for name in group:
                file.write(struct.pack("<I", len(name)) + name)


def page_groups(
    generation: Generation, traffic: Traffic, count: int, reads: int
) -> list[list[bytes]]:
    """Returns the names of the pages of `count` cold rows, over all tables, for each read."""
    groups: list[list[bytes]] = [[] for _ in range(reads)]
    for t, table in enumerate(generation.tables):
        share = count // TABLES + (t < count % TABLES)
        keys = keys_of(traffic.cold(share * reads))
        shards, pages = _native.page_of_keys(keys, generation.shards, table.pages)
        places = (generation.shards, generation.number, t, table.pages)
        for i, (shard, page) in enumerate(zip(shards.tolist(), pages.tolist(), strict=True)):
            groups[i // share] += _native.page_names(*places, shard, page, 1)
    return groups
