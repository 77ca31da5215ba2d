"""Versions on a disk that is a dictionary, and what is loaded of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from hotrow.serving.lifecycle.limited_threads import LimitedThreads
from hotrow.serving.lifecycle.load_policy import LoadPolicy
from hotrow.serving.lifecycle.model_lifecycle import (
    Lost,
    ModelLifecycle,
)

WAIT_SECONDS = 30.0


class Loaded:
    """A version, closed or not; a request may keep it open."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = threading.Event()
        self.unused = threading.Event()
        self.unused.set()

    def close(self) -> None:
        assert self.unused.wait(WAIT_SECONDS)
        self.closed.set()


class Disk:
    """What versions there are, and whether they load."""

    def __init__(self) -> None:
        self.versions: dict[int, Path] | None = {}
        self.broken: dict[int, Exception] = {}
        self.loaded: list[int] = []
        self.lines: list[str] = []
        self.routed: dict[int, Loaded] = {}
        self.lost: dict[int, Lost] = {}
        self.held: dict[int, threading.Event] = {}
        self.changed = threading.Condition()

    def list_versions(self) -> dict[int, Path] | None:
        return self.versions

    def load(self, number: int, path: Path, lost: Lost) -> Loaded:
        with self.changed:
            self.loaded.append(number)
            self.lost[number] = lost
            self.changed.notify_all()
        if number in self.held:
            assert self.held[number].wait(WAIT_SECONDS)
        if number in self.broken:
            raise self.broken[number]
        return Loaded(number)

    def publish(self, versions: Mapping[int, Loaded]) -> None:
        assert not any(version.closed.is_set() for version in versions.values())
        self.routed = dict(versions)

    def log(self, line: str) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def wait_for(self, part: str) -> None:
        with self.changed:
            assert self.changed.wait_for(
                lambda: any(part in line for line in self.lines), WAIT_SECONDS
            ), self.lines

    def wait_for_loads(self, *numbers: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.loaded == list(numbers), WAIT_SECONDS), (
                self.loaded
            )

    def put(self, *numbers: int) -> None:
        self.versions = {number: Path(f"/m/{number}") for number in numbers}


def make_lifecycle(
    disk: Disk,
    policy: LoadPolicy,
    loads: int = 0,
    changed: threading.Condition | None = None,
) -> ModelLifecycle[Loaded]:
    return ModelLifecycle(
        "m",
        disk.load,
        disk.publish,
        policy,
        LimitedThreads("load", loads),
        LimitedThreads("unload", 0),
        changed or threading.Condition(),
    )


POLICY = LoadPolicy(poll_seconds=0.01, max_retries=2, retry_seconds=0.01)
