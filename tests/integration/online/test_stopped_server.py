"""One of two servers hangs: cuts go on and are folded without it, and it catches up later."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from integration.online.online_run import Work, append_events, click_rows
from integration.serving.server_processes import control_of, data_plane_of
from waiting import wait_until

from hotrow.store import open_store
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations
from hotrow.store.readers import Reader, readers


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    work.configure("  max_hold_seconds: 2\n")
    yield work
    work.close()


class Looks:
    """What the store says of readers and cuts of the newest version."""

    def __init__(self, work: Work) -> None:
        self._store = open_store(work.store)
        records = self._store.records
        self._generation = Generations(records).get(work.manifest().generation)

    def readers(self) -> list[Reader]:
        return readers(self._store.records, self._generation.generation)

    def folded(self) -> int:
        """Returns the version of the newest folded cut."""
        cuts = cuts_of(self._store.records, self._generation)
        return max((cut.version for cut in cuts if cut.folded), default=0)

    def close(self) -> None:
        self._store.close()


@contextlib.contextmanager
def stopped(server) -> Iterator[None]:
    """Stops all processes of a server."""
    pids = [server.process.pid, control_of(server), data_plane_of(server)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def scores(server) -> np.ndarray:
    rows = click_rows(32, seed=5)
    reply = server.predict(
        price=np.array([row["price"] for row in rows], np.float32),
        user=np.array([row["user"].encode() for row in rows]),
        item=np.array([row["item"].encode() for row in rows]),
    )
    return tf.make_ndarray(reply.outputs["scores"])


def test_others_follow_cuts_are_folded_and_it_catches_up(work, start_server):
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    models = work.folder / "models" / "clicks"
    wait_until(lambda: (models / "1").exists(), work.log, 120)
    servers = [start_server("clicks", models) for _ in range(2)]
    for server in servers:
        server.wait_ready()
    looks = Looks(work)

    def shown() -> list[int]:
        return [reader.cut for reader in looks.readers()]

    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    last = work.last_cut()
    wait_until(lambda: shown() == [last, last], lambda: (shown(), last), 60)

    with stopped(servers[1]):
        append_events(events, click_rows(64, seed=2))
        wait_until(lambda: work.last_cut() > last, work.log, 60)
        newer = work.last_cut()
        wait_until(lambda: newer in shown(), lambda: (shown(), newer), 60)
        # Its lease lasts longer than it may hold up folding.
        wait_until(lambda: any(reader.overruled for reader in looks.readers()), looks.readers, 25)
        wait_until(lambda: looks.folded() >= newer, looks.folded, 60)
        append_events(events, click_rows(640, seed=3))
        wait_until(lambda: work.published_steps()[-1:] == [31], work.log, 120)
        last = work.last_cut()
        wait_until(lambda: last in shown(), lambda: (shown(), last), 60)
    wait_until(lambda: shown() == [last, last], lambda: (shown(), servers[1].log), 120)
    np.testing.assert_array_equal(scores(servers[0]), scores(servers[1]))
    looks.close()
    work.stop(trainer)
    work.check_store()
