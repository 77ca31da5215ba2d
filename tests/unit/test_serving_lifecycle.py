"""The lifecycle without TensorFlow: versions that load when the test lets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hotrow.errors import UnavailableError
from hotrow.serving.lifecycle import LoadPolicy, ModelLifecycle, State, VersionStatus
from hotrow.serving.status import Code, RequestError

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
        self.changed = threading.Condition()

    def list_versions(self) -> dict[int, Path] | None:
        return self.versions

    def load(self, number: int, path: Path) -> Loaded:
        self.loaded.append(number)
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

    def put(self, *numbers: int) -> None:
        self.versions = {number: Path(str(number)) for number in numbers}


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def lifecycle(disk: Disk) -> Iterator[ModelLifecycle[Loaded]]:
    policy = LoadPolicy(poll_seconds=0.01, max_retries=2, retry_seconds=0.01)
    lifecycle = ModelLifecycle("m", disk.list_versions, disk.load, disk.publish, policy, disk.log)
    yield lifecycle
    lifecycle.stop()


def _states(lifecycle: ModelLifecycle[Loaded]) -> dict[int, State]:
    return {status.version: status.state for status in lifecycle.statuses()}


def test_the_newest_version_is_loaded_before_the_old_one_is_closed(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    disk.put(2)
    disk.wait_for("version 1 is unloaded")
    assert disk.lines == [
        "m: version 1 is available",
        "m: version 2 is available",
        "m: version 1 is unloaded",
    ]
    assert _states(lifecycle) == {2: State.AVAILABLE, 1: State.END}


def test_a_request_keeps_its_version_open(disk: Disk, lifecycle: ModelLifecycle[Loaded]) -> None:
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    held = disk.routed[1]
    held.unused.clear()
    disk.put(2)
    disk.wait_for("version 2 is available")
    disk.put(3)
    # Nor does it keep later versions from being loaded.
    disk.wait_for("version 3 is available")
    assert set(disk.routed) <= {2, 3}
    assert not held.closed.is_set()
    assert _states(lifecycle)[1] is State.UNLOADING
    held.unused.set()
    assert held.closed.wait(WAIT_SECONDS)
    disk.wait_for("version 1 is unloaded")


def test_a_failed_load_is_retried_and_then_given_up(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    disk.broken[2] = UnavailableError("the store is away")
    disk.put(2)
    disk.wait_for("version 2 failed to load (attempt 3 of 3, gave up): the store is away")
    assert lifecycle.statuses() == [
        VersionStatus(2, State.END, Code.UNAVAILABLE, "the store is away"),
        VersionStatus(1, State.AVAILABLE),
    ]
    assert set(disk.routed) == {1}
    assert disk.loaded == [1, 2, 2, 2]


def test_a_version_that_failed_is_tried_again_after_it_was_away(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.broken[1] = ValueError("half a file")
    disk.put(1)
    lifecycle.start()
    disk.wait_for("gave up): ValueError: half a file")
    with pytest.raises(RequestError, match=r"\{\{\{name: m version: 1\} due to error: ValueError"):
        lifecycle.wait_until_served(WAIT_SECONDS)
    disk.broken.clear()
    disk.put(2)
    disk.wait_for("version 2 is available")
    disk.put(1)
    disk.wait_for("version 1 is available")


def test_a_disk_that_cannot_be_read_changes_nothing(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    disk.versions = None
    assert not threading.Event().wait(0.1)  # several polls
    assert _states(lifecycle) == {1: State.AVAILABLE}


def test_a_version_that_went_away_serves_again_when_it_is_back(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    disk.put()
    disk.wait_for("version 1 is unloaded")
    assert not disk.routed
    disk.put(1)
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    assert disk.loaded == [1, 1]


def test_stopping_closes_what_is_loaded_after_its_requests(disk: Disk) -> None:
    lifecycle = ModelLifecycle(
        "m", disk.list_versions, disk.load, disk.publish, LoadPolicy(None), disk.log
    )
    disk.put(1)
    lifecycle.start()
    assert lifecycle.wait_until_served(WAIT_SECONDS)
    held = disk.routed[1]
    held.unused.clear()
    stopping = threading.Thread(target=lifecycle.stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    assert not disk.routed
    assert not held.closed.is_set()
    held.unused.set()
    stopping.join(WAIT_SECONDS)
    assert held.closed.is_set()
    assert _states(lifecycle) == {1: State.END}
