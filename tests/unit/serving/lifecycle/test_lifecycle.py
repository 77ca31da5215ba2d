"""The lifecycle without TensorFlow: versions that load when the test lets them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from logged_lines import logged_lines
from unit.serving.lifecycle.versions_on_disk import (
    POLICY,
    WAIT_SECONDS,
    Disk,
    Loaded,
    make_lifecycle,
)
from waiting import wait_until

from hotrow.errors import DataLossError, UnavailableError
from hotrow.serving.lifecycle.load_policy import LoadPolicy
from hotrow.serving.lifecycle.model_lifecycle import (
    Lost,
    ModelLifecycle,
    State,
    VersionStatus,
)
from hotrow.serving.wire.status import Code, RequestError


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    with logged_lines(disk.log):
        yield disk


@pytest.fixture
def lifecycle(disk: Disk) -> Iterator[ModelLifecycle[Loaded]]:
    lifecycle = make_lifecycle(disk, POLICY)
    yield lifecycle
    lifecycle.stop()


def _states(lifecycle: ModelLifecycle[Loaded]) -> dict[int, State]:
    return {status.version: status.state for status in lifecycle.statuses()}


def test_the_newest_version_is_loaded_before_the_old_one_is_closed(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
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
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
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
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.broken[2] = DataLossError("half a file")
    disk.put(2)
    disk.wait_for("version 2 failed to load (attempt 3 of 3, gave up): /m/2: half a file")
    assert lifecycle.statuses() == [
        VersionStatus(2, State.END, Code.DATA_LOSS, "half a file"),
        VersionStatus(1, State.AVAILABLE),
    ]
    assert set(disk.routed) == {1}
    assert disk.loaded == [1, 2, 2, 2]


def test_a_version_is_tried_until_its_store_answers(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.broken[1] = UnavailableError("the store is away")
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    wait_until(lambda: len(disk.loaded) >= 6)  # more than are counted
    waiting = VersionStatus(1, State.LOADING, Code.UNAVAILABLE, "the store is away")
    assert lifecycle.statuses() == [waiting]
    assert lifecycle.outcome() is None
    disk.broken.clear()
    disk.wait_for("version 1 is available")


def test_without_retries_a_store_that_does_not_answer_ends_a_version(disk: Disk) -> None:
    lifecycle = make_lifecycle(disk, LoadPolicy(0.01, max_retries=0))
    disk.broken[1] = UnavailableError("the store is away")
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 failed to load (attempt 1 of 1, gave up): /m/1: the store is away")
    lifecycle.stop()


def test_a_version_that_failed_is_tried_again_after_it_was_away(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.broken[1] = ValueError("half a file")
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("gave up): /m/1: ValueError: half a file")
    failed = VersionStatus(1, State.END, Code.INTERNAL, "ValueError: half a file")
    assert lifecycle.outcome() == failed
    disk.broken.clear()
    disk.put(2)
    disk.wait_for("version 2 is available")
    disk.put(1)
    disk.wait_for("version 1 is available")


def test_a_disk_that_cannot_be_read_changes_nothing(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.versions = None
    assert not threading.Event().wait(0.1)  # several polls
    assert _states(lifecycle) == {1: State.AVAILABLE}


def test_a_version_that_went_away_serves_again_when_it_is_back(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.put()
    disk.wait_for("version 1 is unloaded")
    assert not disk.routed
    disk.put(1)
    disk.wait_for_loads(1, 1)


def test_stopping_closes_what_is_loaded_after_its_requests(disk: Disk) -> None:
    lifecycle = make_lifecycle(disk, LoadPolicy(None))
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
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


def test_versions_load_one_after_the_other_the_highest_first(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.held[3] = threading.Event()
    disk.put(1, 3, 2)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for_loads(3)
    assert not threading.Event().wait(0.05)  # several polls
    assert disk.loaded == [3]
    disk.held[3].set()
    disk.wait_for_loads(3, 2, 1)


def test_with_threads_for_it_versions_load_at_the_same_time(disk: Disk) -> None:
    lifecycle = make_lifecycle(disk, POLICY, loads=2)
    for number in (2, 3):
        disk.held[number] = threading.Event()
    disk.put(1, 2, 3)
    lifecycle.aspire(disk.list_versions)
    with disk.changed:
        assert disk.changed.wait_for(lambda: set(disk.loaded) == {2, 3}, WAIT_SECONDS)
    disk.held[2].set()
    disk.wait_for("version 1 is available")
    assert _states(lifecycle) == {3: State.LOADING, 2: State.AVAILABLE, 1: State.AVAILABLE}
    disk.held[3].set()
    lifecycle.stop()


def test_a_slow_load_does_not_hold_up_the_polling(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.held[2] = threading.Event()
    disk.put(2)
    disk.wait_for_loads(1, 2)
    disk.put()
    disk.wait_for("version 1 is unloaded")
    disk.held[2].set()
    disk.wait_for("version 2 is unloaded")
    assert not disk.routed


def test_a_failed_new_version_leaves_every_aspired_older_one_serving(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1, 2)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.broken[3] = ValueError("half a file")
    disk.put(2, 3)
    disk.wait_for("gave up")
    disk.wait_for("version 1 is unloaded")
    assert set(disk.routed) == {2}


def test_a_version_that_is_lost_is_loaded_again(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.held[1] = threading.Event()
    disk.lost[1](RequestError(Code.UNAVAILABLE, "the store is away"))
    assert not disk.routed
    waiting = VersionStatus(1, State.LOADING, Code.UNAVAILABLE, "the store is away")
    assert lifecycle.statuses() == [waiting]
    disk.held[1].set()
    disk.wait_for_loads(1, 1)
    disk.wait_for("attempt not counted, next in 0.01 s): /m/1: the store is away")


def test_a_version_that_stays_lost_ends_with_its_error(disk: Disk) -> None:
    lifecycle = make_lifecycle(disk, LoadPolicy(0.01, max_retries=0))
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    disk.lost[1](RequestError(Code.NOT_FOUND, "no such directory"))
    gone = VersionStatus(1, State.END, Code.NOT_FOUND, "no such directory")
    assert lifecycle.statuses() == [gone]
    assert lifecycle.outcome() == gone
    lifecycle.stop()


def test_a_version_that_is_lost_is_freed_before_it_is_loaded_again(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    first = disk.routed[1]
    disk.lost[1](RequestError(Code.UNAVAILABLE, "the store is away"))
    assert first.closed.is_set()
    disk.wait_for_loads(1, 1)


def test_a_version_that_is_lost_while_it_loads_is_freed(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    made: list[Loaded] = []

    def load(number: int, path: Path, lost: Lost) -> Loaded:
        made.append(Loaded(number))
        if len(made) == 1:
            lost(RequestError(Code.UNAVAILABLE, "it ended"))
        return made[-1]

    disk.load = load  # type: ignore[method-assign]
    losing = make_lifecycle(disk, POLICY)
    disk.put(1)
    losing.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    assert [one.closed.is_set() for one in made] == [True, False]
    losing.stop()


def test_a_version_that_cannot_be_routed_to_is_freed(disk: Disk) -> None:
    made: list[Loaded] = []

    def load(number: int, path: Path, lost: Lost) -> Loaded:
        made.append(Loaded(number))
        return made[-1]

    def publish(versions: Mapping[int, Loaded]) -> None:
        if versions and len(made) == 1:
            raise UnavailableError("the server is ending")

    disk.load, disk.publish = load, publish  # type: ignore[method-assign]
    lifecycle = make_lifecycle(disk, POLICY)
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    assert [one.closed.is_set() for one in made] == [True, False]
    lifecycle.stop()


def test_a_retired_model_unloads_and_comes_back(
    disk: Disk, lifecycle: ModelLifecycle[Loaded]
) -> None:
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")
    lifecycle.retire()
    disk.wait_for("version 1 is unloaded")
    assert lifecycle.outcome() is None
    assert _states(lifecycle) == {1: State.END}
    lifecycle.aspire(disk.list_versions)
    disk.wait_for_loads(1, 1)


def test_the_disk_may_fail_in_any_way(disk: Disk, lifecycle: ModelLifecycle[Loaded]) -> None:
    def fail() -> None:
        raise ValueError("a name that is no text")

    lifecycle.aspire(fail)
    disk.wait_for("m: its versions cannot be listed: ValueError: a name that is no text")
    disk.put(1)
    lifecycle.aspire(disk.list_versions)
    disk.wait_for("version 1 is available")


class CountingCondition(threading.Condition):
    """Counts how often everybody is woken up."""

    wakes = 0

    def notify_all(self) -> None:
        self.wakes += 1
        super().notify_all()


def test_models_do_not_keep_each_other_awake() -> None:
    changed = CountingCondition()
    disks = [Disk(), Disk()]
    lifecycles = [make_lifecycle(disk, POLICY, changed=changed) for disk in disks]
    polls = threading.Semaphore(0)

    def find(disk: Disk) -> dict[int, Path] | None:
        polls.release()
        return disk.versions

    for disk, lifecycle in zip(disks, lifecycles, strict=True):
        disk.put(1)
        with logged_lines(disk.log):
            lifecycle.aspire(functools.partial(find, disk))
            disk.wait_for("version 1 is available")
    before = changed.wakes
    for _ in range(20 + len(lifecycles)):
        assert polls.acquire(timeout=WAIT_SECONDS)
    assert changed.wakes == before
    for lifecycle in lifecycles:
        lifecycle.stop()
