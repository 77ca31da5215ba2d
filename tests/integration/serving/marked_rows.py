"""A model whose answers show which cut each of their rows and weights is of, and its clients."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import keras
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from waiting import wait_until

import hotrow
from hotrow.hold_bounds import HoldBounds
from hotrow.manifest import read_manifest
from hotrow.ops.export.dense_checkpoint import dense_checkpoint
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cut_folding import fold
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import CutRecord, TableChanges, cuts_of, forget_cuts
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.readers import readers
from hotrow.store.taken_cuts import fold_taken

KEYS = 300
"""Each cut changes the rows of a third of them."""
TEMPORARY = 60
"""Further keys, behind the others; cut c removes number c."""
_DIM = 8
_CUTS = 256  # fewer, so that a row holds key and cut exactly
_WAIT_SECONDS = 30.0
_FEWEST = 20  # answers of a client


def row_of(key: int, cut: int) -> float:
    """Returns all weights of a key's row as a server that shows a cut has them; 0: exported."""
    if key >= KEYS:
        gone = key >= KEYS + TEMPORARY or 1 <= key - KEYS <= cut
        return 0.0 if gone else float(key * _CUTS)
    last = cut - (key + cut) % 3
    return float(key * _CUTS + max(last, 0))


class MarkedModel:
    """A version with its rows in a store, and the exporter of its cuts.

    Args:
        base: folder of models.
        url: of the store.
        name: of the model.
        access: credentials for the store.

    Attributes:
        path: base path of the model.
        store, generation: of the version.
    """

    def __init__(
        self, base: Path, url: str, name: str = "m", access: StoreAccess | None = None
    ) -> None:
        table = hotrow.TableConfig("items", embedding_dim=_DIM, optimizer=hotrow.SGD(0.1))
        embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig("id", table)])
        key = keras.Input((1,), dtype="int64", name="id")
        row = embedding({"id": key})["id"]
        mark = keras.layers.Dense(_DIM, kernel_initializer="zeros", bias_initializer="zeros")
        marks = mark(row)
        outputs = {
            "row_low": keras.ops.min(row, axis=1),
            "row_high": keras.ops.max(row, axis=1),
            "mark_low": keras.ops.min(marks, axis=1),
            "mark_high": keras.ops.max(marks, axis=1),
        }
        self._model = keras.Model({"id": key}, outputs)
        self._mark = mark
        self._name, self._url, self._access = name, url, access
        self._table = embedding.tables["items"]
        keys = np.arange(KEYS + TEMPORARY, dtype=np.int64)
        self._import(self._table, keys)
        self.path = base / name
        directory = hotrow.export_model(self._model, base, name, store=url, access=access)
        self._version = directory
        manifest = read_manifest(directory / "assets" / "hotrow_manifest.json")
        self.store = open_store(url, access)
        self.generation = Generations(self.store.records).get(manifest.generation)

    def close(self) -> None:
        self.store.close()

    def export(self, cut: int) -> Path:
        """Exports the state of a cut in full, as the next version; returns its directory.

        Later cuts go on from the first version nevertheless.
        """
        gone = np.arange(KEYS + 1, KEYS + cut + 1, dtype=np.int64)
        keys = np.setdiff1d(np.arange(KEYS + TEMPORARY, dtype=np.int64), gone)
        self._table.clear()
        self._import(self._table, keys, cut)
        self._mark.bias.assign(np.full(_DIM, cut, np.float32))
        base = self.path.parent
        # Nothing but a mark grows so.
        return hotrow.export_model(
            self._model, base, self._name, store=self._url, access=self._access, force=True
        )

    @staticmethod
    def _import(table: Any, keys: np.ndarray, cut: int = 0) -> None:
        lines = np.zeros((len(keys), table.line_layout.line_bytes), np.uint8)
        table.line_layout.weights(lines)[:] = _rows(keys.tolist(), cut)
        zeros = np.zeros(len(keys), np.uint32)
        table.import_rows(keys, lines, zeros, zeros)

    def dense(self, cut: float) -> bytes:
        """Returns the weights of a cut as an export does."""
        self._mark.bias.assign(np.full(_DIM, cut, np.float32))
        return dense_checkpoint([self._mark.kernel, self._mark.bias], self._version)[0]

    def write(
        self,
        number: int,
        *,
        since: int | None = None,
        rows: bool = True,
        spoiled: str = "",
        forced: bool = False,
        same_dense: CutRecord | None = None,
        event_ms: int = 0,
    ) -> CutRecord:
        """Commits cut 1, 2, ...

        Args:
            number: of the cut.
            since: the cut that it goes on from; None: the one before.
            rows: whether it has the rows that changed, beside the weights.
            spoiled: "row" or "dense": what is not finite.
            forced: whether servers take it nevertheless.
            same_dense: a cut that has the same weights; None: it has its own.
            event_ms: time of its newest event, in Unix milliseconds; 0: not known.
        """
        numbers = range(number if since is None else since + 1, number + 1)
        keys = [key for key in range(KEYS) if any((key + n) % 3 == 0 for n in numbers)]
        values = _rows(keys, number)
        if spoiled == "row":
            values[7, 3] = np.nan
        changes = TableChanges(
            np.array(keys, np.int64),
            values.view(np.uint8),
            np.array([KEYS + n for n in numbers], np.int64),
        )
        dense = self.dense(np.inf if spoiled == "dense" else number)
        with lock_exports(self.store.records, self._name) as lock:
            return write_cut(
                self.store,
                self.generation,
                lock,
                changes=[(0, changes)] if rows else [],
                dense=same_dense or dense,
                step=1000 + number,
                clocks=[number],
                forced=forced,
                event_ms=event_ms,
            )

    def noted(self) -> list[int]:
        """Returns the versions of the cuts that servers have noted."""
        return [reader.cut for reader in readers(self.store.records, self.generation.generation)]

    def wait_until_noted(self, cut: CutRecord, servers: int = 1) -> None:
        """Waits until this many servers have taken a cut."""
        wait_until(lambda: self.noted() == [cut.version] * servers, lambda: self.noted())

    def fold_taken(self, undo_cuts: int, bounds: HoldBounds = HoldBounds()) -> None:  # noqa: B008
        """Folds the cuts that servers have taken, as an exporter does."""
        with lock_exports(self.store.records, self._name) as lock:
            fold_taken(self.store, self.generation, lock, undo_cuts=undo_cuts, bounds=bounds)

    def fold(self) -> None:
        """Folds all cuts, and forgets those before the newest."""
        cuts = cuts_of(self.store.records, self.generation)
        for cut in cuts:
            if not cut.folded:
                fold(self.store, self.generation, [cut])
        forget_cuts(self.store, self.generation, cuts[:-1])


def _rows(keys: list[int], cut: int) -> np.ndarray:
    """Returns float32 [N, D]."""
    values = np.array([row_of(key, cut) for key in keys], np.float32)
    return np.repeat(values[:, None], _DIM, axis=1)


@dataclass(frozen=True)
class Seen:
    """The cut that an answer shows, and its times.

    Attributes:
        began, ended: of `time.monotonic`.
        cut: 0: as exported; None: the request failed.
        wrong: the parts that are not of that cut.
        failure: of a request that failed.
        stale: the answer's report of rows that may be old.
    """

    began: float
    ended: float
    cut: int | None
    wrong: tuple[str, ...] = ()
    failure: str = ""
    stale: str | None = None


def ask(server: Any, keys: np.ndarray, timeout: float = 30.0) -> Seen:
    """Requests keys int64 [N] and checks every row."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = server.model
    request.inputs["id"].CopyFrom(tf.make_tensor_proto(keys[:, None]))
    began = time.monotonic()
    try:
        reply, call = server.prediction.Predict.with_call(request, timeout=timeout)
    except grpc.RpcError as err:
        text = f"{err.code().name}: {err.details()}"
        return Seen(began, time.monotonic(), None, failure=text)
    ended = time.monotonic()
    got = {name: tf.make_ndarray(value) for name, value in reply.outputs.items()}
    marks = sorted({*got["mark_low"].tolist(), *got["mark_high"].tolist()})
    cut = int(marks[0])
    wrong = [] if len(marks) == 1 else [f"weights of cuts {marks}"]
    wanted = np.array([row_of(key, cut) for key in keys.tolist()], np.float32)
    for which in ("row_low", "row_high"):
        wrong += [
            f"key {keys[i]}: {got[which][i]}, at cut {cut} {wanted[i]}"
            for i in np.flatnonzero(got[which] != wanted)
        ]
    stale_rows = dict(call.trailing_metadata() or ()).get("x-hotrow-stale-rows")
    return Seen(began, ended, cut, tuple(wrong), stale=stale_rows)


def cut_of(server: Any) -> int:
    """Returns the cut that a server shows, after a check of all its rows."""
    seen = ask(server, np.arange(KEYS + TEMPORARY, dtype=np.int64))
    assert not seen.failure, seen
    assert not seen.wrong, seen.wrong[:5]
    assert seen.cut is not None
    return seen.cut


def wait_until_answered(server: Any) -> None:
    """Waits until a client that found no server for a while reaches it again."""
    key = np.zeros(1, np.int64)
    wait_until(lambda: not ask(server, key).failure, lambda: ask(server, key))


@dataclass
class MarkedLoad:
    """Clients that request random keys all the time and check the answers."""

    server: Any
    clients: int = 2
    keys: int = 40
    forward: bool = True
    seen: list[list[Seen]] = field(default_factory=list)

    def wait_for(self, cut: int) -> float:
        """Waits until every client has an answer of a cut; returns the time of the last one."""

        def first(client: list[Seen]) -> float | None:
            return next((s.ended for s in list(client) if s.cut is not None and s.cut >= cut), None)

        wait_until(
            lambda: all(first(client) is not None for client in self.seen),
            lambda: [client[-1] for client in self.seen],
        )
        return max(at for client in self.seen if (at := first(client)) is not None)

    def cuts(self) -> set[int]:
        """Returns the cuts of all answers."""
        return {seen.cut for client in self.seen for seen in client if seen.cut is not None}

    def failures(self) -> list[str]:
        """Returns the failures of requests."""
        return [seen.failure for client in self.seen for seen in client if seen.failure]

    def check(self) -> None:
        """Checks that no answer is wrong, and that none is older than before if cuts go forward."""
        assert all(len(client) > _FEWEST for client in self.seen)
        for client in self.seen:
            wrong = [seen for seen in client if seen.wrong]
            assert not wrong, (len(wrong), wrong[0].wrong[:4])
            cuts = [seen.cut for seen in client if seen.cut is not None]
            assert not self.forward or cuts == sorted(cuts)


@contextlib.contextmanager
def marked_load(server: Any, clients: int = 2, *, forward: bool = True) -> Iterator[MarkedLoad]:
    """Runs clients until the end of the block, and then checks what they saw.

    Args:
        server: the server.
        clients: number of threads.
        forward: whether no client may see an older cut after a newer one.
    """
    load = MarkedLoad(server, clients, forward=forward, seen=[[] for _ in range(clients)])
    ended = threading.Event()

    def run(number: int) -> None:
        rng = np.random.default_rng(number)
        while not ended.wait(0.01):
            keys = rng.integers(0, KEYS + TEMPORARY, load.keys, dtype=np.int64)
            load.seen[number].append(ask(server, keys))

    threads = [threading.Thread(target=run, args=[n], daemon=True) for n in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
        # On a busy machine that may take longer than the block.
        wait_until(lambda: all(len(client) > _FEWEST for client in load.seen))
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    load.check()
