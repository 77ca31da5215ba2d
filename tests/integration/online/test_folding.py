"""Cuts are folded several at once, once servers have taken them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from integration.store.trained_states import assert_folded, full_export, state, write
from waiting import wait_until

from hotrow.errors import DataLossError, FailedPreconditionError, HotrowError
from hotrow.hold_bounds import HoldBounds
from hotrow.store import cut_folding, open_store
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use
from hotrow.store.redis.layout import markers_of
from hotrow.store.taken_cuts import fold_taken
from hotrow.store.undo import undos_of
from hotrow.trainer.online.publishing.folding import Folding


class Published:
    """A generation whose cuts a trainer writes, and another connection for folding.

    Attributes:
        folding: the other connection.
        puts: how often it has put rows.
        may_put: while this is clear, `put` waits.
    """

    def __init__(self, url: str) -> None:
        self.store = open_store(url)
        self.generation = full_export(self.store)
        self.lock = lock_exports(self.store.records, "m")
        self.folding: Any = open_store(url)
        self.puts = 0
        self.may_put = threading.Event()
        self.may_put.set()
        put = self.folding.put

        def counted(*arguments: Any) -> int:
            self.puts += 1
            assert self.may_put.wait(60)
            return int(put(*arguments))

        self.folding.put = counted

    def write(self, number: int) -> CutRecord:
        """Commits the changes up to a state."""
        return write(self.store, self.generation, self.lock, number)

    def folded(self) -> list[bool]:
        """Returns which of the cuts are folded."""
        return [cut.folded for cut in cuts_of(self.store.records, self.generation)]

    def await_folded(self) -> None:
        """Waits until one cut is left, which is folded, and nothing of the others."""
        names = self.store.records.names
        wait_until(lambda: self.folded() == [True] and not names("staging/"), self.folded)

    def close(self) -> None:
        """Releases the lock."""
        self.may_put.set()
        self.lock.release()
        self.store.close()


@pytest.fixture
def published(redis_server: Any) -> Iterator[Published]:
    made = Published(redis_server.url)
    yield made
    made.close()


@pytest.fixture
def seconds() -> float:
    """For how long cuts are collected before they are folded."""
    return 0.1


class Noted(Folding):
    """Folding that notes what it says.

    Attributes:
        folded: version of the newest folded cut.
        left: number of cuts that are not folded.
        failure: why folding has failed.
    """

    def __init__(self, published: Published, seconds: float) -> None:
        super().__init__(
            lambda: published.folding,
            seconds=seconds,
            bounds=HoldBounds(),
            note=self._have_counts,
            fail=self._have_failed,
            report=lambda line: None,
        )
        self.folded, self.left = 0, 0
        self.failure: HotrowError | None = None
        self._published = published

    def start_on_cuts(self, undo_cuts: int = 1) -> None:
        """Follows the published cuts."""
        lock = self._published.lock
        self.failure = None
        self.follow(self._published.generation, lock.name, lock.holder, undo_cuts)

    def _have_counts(self, folded: int, left: int) -> None:
        self.folded, self.left = folded, left

    def _have_failed(self, failure: HotrowError) -> None:
        self.failure = failure


@pytest.fixture
def folding(published: Published, seconds: float) -> Iterator[Noted]:
    """A started thread, which follows nothing yet."""
    folding = Noted(published, seconds)
    folding.start()
    yield folding
    published.may_put.set()
    folding.close()


def test_cuts_are_folded_together_once_servers_have_taken_them(
    published: Published, folding: Noted
) -> None:
    with use(published.store.records, published.generation.generation, "server") as server:
        folding.start_on_cuts()
        cuts = [published.write(number) for number in (1, 2, 3)]
        wait_until(lambda: folding.left == 3)
        assert not published.puts
        server.note_cut(cuts[2].version)
        wait_until(lambda: folding.left == 0)
    assert folding.folded == cuts[2].version
    # The first two at once; the last alone, because what it replaces is kept.
    undos = undos_of(published.store.records, published.generation)
    assert [undo.version for undo in undos] == [cuts[2].version]
    assert undos[0].before.version == cuts[1].version
    assert_folded(published.store, published.generation, state(3))


def test_a_rollback_drops_nothing_that_is_kept_for_another(
    published: Published, folding: Noted
) -> None:
    first = published.write(1)
    folding.start_on_cuts()
    wait_until(lambda: folding.folded == first.version)
    folding.start_on_cuts(undo_cuts=2)
    second = published.write(2)
    wait_until(lambda: folding.folded == second.version)
    undos = undos_of(published.store.records, published.generation)
    assert [undo.version for undo in undos] == [first.version, second.version]


def test_cuts_are_published_while_others_are_folded(published: Published, folding: Noted) -> None:
    published.write(1)
    published.may_put.clear()
    folding.start_on_cuts()
    wait_until(lambda: published.puts == 1)
    published.write(2)
    assert published.folded() == [False, False]
    published.may_put.set()
    published.await_folded()
    assert_folded(published.store, published.generation, state(2))


def test_what_needs_the_store_alone_breaks_folding_off(
    published: Published, folding: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_folding, "BLOCKS_AT_ONCE", 4)
    published.write(1)
    published.may_put.clear()
    folding.start_on_cuts()
    wait_until(lambda: published.puts == 1)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        folding.hold()
        inside.set()
        assert leave.wait(60)
        folding.start_on_cuts()

    holding = threading.Thread(target=hold)
    holding.start()
    assert not inside.wait(0.2)  # while rows are put
    published.may_put.set()
    assert inside.wait(60)
    puts = published.puts
    assert published.folded() == [False]
    time.sleep(0.5)  # five times its interval
    assert published.puts == puts
    leave.set()
    holding.join()
    published.await_folded()
    assert_folded(published.store, published.generation, state(1))


def test_a_cut_that_lost_blocks_is_reported_and_folding_begins_anew_when_asked(
    published: Published, folding: Noted
) -> None:
    cut = published.write(1)
    some = list(cut.places[:1])
    store, generation = published.store, published.generation
    (block,) = store.staged(generation, cut.version, some)
    assert block is not None
    store.unstage(generation, cut.version, some)
    folding.start_on_cuts()
    wait_until(lambda: folding.failure is not None)
    assert isinstance(folding.failure, DataLossError)
    store.stage(generation, cut.version, {some[0]: block})
    folding.start_on_cuts()
    assert folding.failure is None
    wait_until(lambda: published.folded() == [True])


@pytest.mark.parametrize("seconds", [600.0])
def test_a_lost_block_that_a_server_awaits_is_noticed_long_before_cuts_are_folded(
    published: Published, folding: Noted
) -> None:
    store, generation = published.store, published.generation
    with use(store.records, generation.generation, "server") as server:
        cuts = [published.write(number) for number in (1, 2, 3)]
        server.note_cut(cuts[0].version)
        store.unstage(generation, cuts[2].version, [cuts[2].places[0]])
        folding.start_on_cuts()
        wait_until(lambda: isinstance(folding.failure, DataLossError), lambda: folding.failure)
    assert published.folded() == [False, False, False]


@pytest.mark.parametrize("seconds", [600.0])
def test_a_lost_block_is_noticed_although_the_clock_was_set_back(
    published: Published, folding: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, generation = published.store, published.generation
    records = published.folding.records
    monkeypatch.setattr(records, "now_ms", lambda: store.records.now_ms() - 3_600_000)
    with use(store.records, generation.generation, "server") as server:
        cuts = [published.write(number) for number in (1, 2)]
        server.note_cut(cuts[0].version)
        store.unstage(generation, cuts[1].version, [cuts[1].places[0]])
        folding.start_on_cuts()
        wait_until(lambda: isinstance(folding.failure, DataLossError), lambda: folding.failure)


@pytest.mark.parametrize("seconds", [600.0])
@pytest.mark.parametrize("is_last", [True, False], ids=["the last cut", "one before"])
def test_what_a_failover_has_undone_is_folded_again_long_before_cuts_are(
    is_last: bool, published: Published, folding: Noted, redis_server: Any
) -> None:
    """Servers answer by rows that the store has no more, and say so until it has them again."""
    store, generation = published.store, published.generation
    cut = published.write(1)
    with contextlib.closing(redis_server.client()) as client:
        names = [name for name in client.scan_iter(_type="string") if b"!" not in name]
        names += markers_of(generation)[0]
        before = {name: client.dump(name) for name in names}
        fold_taken(store, generation, published.lock)
        for name, content in before.items():
            client.restore(name, 0, content, replace=True)
    if not is_last:
        published.write(2)
    assert int(store.watermarks(generation).min()) < cut.version
    folding.start_on_cuts()
    wait_until(lambda: int(store.watermarks(generation).min()) >= cut.version)
    assert folding.failure is None


def test_the_end_of_a_trainer_folds_what_servers_have_taken(
    published: Published, folding: Noted
) -> None:
    folding.start_on_cuts()
    published.write(1)
    folding.close()
    assert published.folded() == [True]


def test_nothing_is_folded_once_another_process_has_the_lock(
    published: Published, folding: Noted
) -> None:
    folding.start_on_cuts()
    published.write(1)
    wait_until(lambda: published.folded() == [True])
    published.lock.release()
    with lock_exports(published.store.records, "m") as lock:
        write(published.store, published.generation, lock, 2)
        wait_until(lambda: folding.failure is not None)
        assert isinstance(folding.failure, FailedPreconditionError)
        assert published.folded() == [True, False]
