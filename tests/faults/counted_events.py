"""Events whose number a model shows exactly, in a Redis Stream that may fail.

An event names the keys of one group in all columns. `counted_run.py` trains a batch of them so that
each row of the group counts it. The stream itself says what must be trained, because a producer
whose connection breaks does not know what has arrived.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import redis
from redis_servers.standalone import RedisServer

GROUPS = 48
COLUMNS = ("a", "b", "c", "d")
"""A group has a key in each."""
BATCH = 8
LATE_SECONDS = 60.0
STREAM = "events"
_PAUSE = 0.05  # between two batches
_SECONDS = 0.01  # between the times of two events
_FIRST = 1.7e9
_BAD = ('{"time": ', '{"y": 7}', '{"time": %T, "y": 3}', '{"time": %T, "y": null, "a": "a1"}')
_TIMEOUT = 1.0


class CountedEvents:
    """A Redis server with the stream, who writes to it, and what is in it.

    Args:
        folder: new.
        seed: of the events.

    Attributes:
        url: of the source, as the trainer takes it.
        refused: what must become dead letters: ids of bad events, and times of late ones.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        # So that what was acknowledged, or read, is there after a kill.
        settings = {"appendonly": "yes", "appendfsync": "always"}
        self._server = RedisServer(folder, settings=settings)
        self.url = f"{self._server.url}?stream={STREAM}&group=trainer"
        self.refused: set[str] = set()
        self._chance = random.Random(f"events {seed}")
        self._numbers = itertools.count()
        self._recent: deque[str] = deque(maxlen=200)
        self._lock = threading.Lock()  # of the server's process
        self._last = "-"
        self._groups: list[int] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Ends the server."""
        self.stop()
        self._server.kill()

    def start(self) -> None:
        """Begins to write batches, one after the other, unless it does that already."""
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def fill_up(self) -> None:
        """Completes the last batch; nothing else writes, and the server answers."""
        self.read()
        self._send([self._event() for _ in range(-len(self._groups) % BATCH)])

    def read(self) -> np.ndarray:
        """Returns how often each group was counted after each batch, int64 [batches + 1, GROUPS].

        Also brings `refused` up to date.
        """
        with contextlib.closing(self._client()) as client:
            while entries := client.xrange(STREAM, self._last, count=5000):
                for identity, fields in entries:
                    self._note(identity.decode(), fields)
                self._last = f"({entries[-1][0].decode()}"
        steps = len(self._groups) // BATCH
        one = np.zeros((steps + 1, GROUPS), np.int64)
        batches = np.repeat(np.arange(1, steps + 1), BATCH)
        np.add.at(one, (batches, self._groups[: steps * BATCH]), 1)
        return one.cumsum(axis=0)

    # --- faults ---

    def kill_source(self, target: int, lasts: float) -> None:
        """Kills the server for a while."""
        with self._lock:
            self._server.kill()
            time.sleep(lasts)
            self._server.restart()

    def freeze_source(self, target: int, lasts: float) -> None:
        """Stops the server for a while."""
        with self._lock:
            self._server.freeze()
            time.sleep(lasts)
            self._server.thaw()

    def send_bad_events(self, target: int, lasts: float) -> None:
        """Sends events that cannot be trained."""
        with contextlib.suppress(redis.RedisError):
            texts = [text.replace("%T", str(self._now())) for text in _BAD]
            self._send(texts, kind="bad")

    def send_late_events(self, target: int, lasts: float) -> None:
        """Sends events that are older than may be trained."""
        with contextlib.suppress(redis.RedisError):
            events = [self._event(self._now() - 100 * LATE_SECONDS) for _ in range(5)]
            self._send(events, kind="late")

    def send_events_again(self, target: int, lasts: float) -> None:
        """Sends a batch again, as a producer does that has seen no answer."""
        with contextlib.suppress(redis.RedisError):
            self._send(list(self._recent)[:BATCH])

    def lift(self) -> None:
        """The server runs after each fault."""

    # --- events ---

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE):
            with contextlib.suppress(redis.RedisError, OSError):
                events = [self._event() for _ in range(BATCH)]
                self._send(events)
                self._recent.extend(events)

    def _send(self, events: list[str], kind: str = "good") -> None:
        with contextlib.closing(self._client()) as client:
            pipeline = client.pipeline(transaction=False)
            for event in events:
                pipeline.xadd(STREAM, {"event": event, "kind": kind})
            pipeline.execute()

    def _client(self) -> redis.Redis:
        return redis.Redis(port=self._server.port, socket_timeout=_TIMEOUT)

    def _now(self) -> float:
        return _FIRST + next(self._numbers) * _SECONDS

    def _event(self, at: float | None = None) -> str:
        group = min(int(self._chance.expovariate(4.0 / GROUPS)), GROUPS - 1)
        facts: dict[str, Any] = {column: f"{column}{group}" for column in COLUMNS}
        return json.dumps({"time": at or self._now(), "y": 1, "z": "z", "group": group, **facts})

    def _note(self, identity: str, fields: dict[bytes, bytes]) -> None:
        if fields[b"kind"] == b"good":
            self._groups.append(json.loads(fields[b"event"])["group"])
        elif fields[b"kind"] == b"late":
            self.refused.add(str(json.loads(fields[b"event"])["time"]))
        else:
            self.refused.add(identity)
