"""Folding while Redis loses what it acknowledged: marks never stand without their rows."""

from __future__ import annotations

import pytest
from integration.store.half_folded import fold_all_but_the_records_of
from integration.store.trained_states import assert_folded, full_export, state, write

from hotrow.errors import DataLossError
from hotrow.store import open_store, taken_cuts
from hotrow.store.cut_folding import fold
from hotrow.store.cuts import cuts_of, forget_cuts, read_blocks
from hotrow.store.leases import lock_exports
from hotrow.store.redis.layout import markers_of
from hotrow.store.taken_cuts import fold_taken


class LosingStore:
    """A store whose pages go back, as by a failover, right before or after some watermarks are set.

    Attributes:
        losses: how many times it still does.
        lost: how many times it did.
    """

    def __init__(self, store, server, losses, after=False):
        self._store = store
        self._redis = server.client()
        self._after = after
        self._pages = self._dumped()
        self.losses = losses
        self.lost = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def set_watermarks(self, generation, version, shards, least=0):
        if not self._after:
            self._lose()
        self._store.set_watermarks(generation, version, shards, least)
        if self._after:
            self._lose()

    def close(self):
        self._redis.close()

    def _lose(self):
        if not self.losses:
            return
        self.losses -= 1
        self.lost += 1
        for name in self._dumped().keys() - self._pages.keys():
            self._redis.delete(name)
        for name, content in self._pages.items():
            self._redis.restore(name, 0, content, replace=True)

    def _dumped(self):
        """Returns page -> what it holds; neither markers nor blocks of cuts."""
        names = [n for n in self._redis.scan_iter(_type="string", count=1000) if b"!" not in n]
        return {name: self._redis.dump(name) for name in names}


@pytest.fixture
def losing(redis_server):
    """Opens a store with a cut that is not folded, `losing(losses, after=False)`."""
    opened = []

    def begin(losses, after=False):
        store = open_store(redis_server.url)
        opened.append(store)
        generation = full_export(store)
        with lock_exports(store.records, "m") as lock:
            write(store, generation, lock, 1)
        opened.append(LosingStore(store, redis_server, losses, after))
        return opened[-1], generation

    yield begin
    for store in reversed(opened):
        store.close()


@pytest.mark.parametrize("after", [False, True], ids=["before the marks", "behind the marks"])
@pytest.mark.parametrize("losses", [0, 1])
def test_rows_that_a_failover_loses_between_put_and_mark_are_put_again(losing, losses, after):
    store, generation = losing(losses, after)
    with lock_exports(store.records, "m") as lock:
        fold_taken(store, generation, lock)
    assert store.lost == losses
    assert_folded(store, generation, state(1))


def test_a_later_fold_does_not_hide_that_a_node_lost_an_earlier_one(redis_server):
    """A node goes back while the exporter, which has looked at its watermarks, folds the next."""
    store = open_store(redis_server.url)
    generation = full_export(store)
    client = redis_server.client()
    # Pages and markers: of the node that does not have the control records.
    names = [n for n in client.scan_iter(count=1000) if b"!" not in n and n != b"hotrow:{hr}"]
    before = {name: client.dump(name) for name in names}
    lines = []
    for number in (1, 2):
        with lock_exports(store.records, "m") as lock:
            write(store, generation, lock, number)
            if number == 1:
                fold(store, generation, cuts_of(store.records, generation))

    def go_back(line):
        if line.startswith("step 102: 0 of") and not lines:
            assert cuts_of(store.records, generation)[0].folded
            for name, content in before.items():
                client.restore(name, 0, content, replace=True)
        lines.append(line)

    with lock_exports(store.records, "m") as lock:
        fold_taken(store, generation, lock, go_back)
    assert_folded(store, generation, state(2))
    assert any("went back in time while step 102 was folded" in line for line in lines)
    client.close()
    store.close()


def test_rows_that_were_lost_before_a_killed_exporter_wrote_that_it_has_folded_are_put_again(
    losing,
):
    store, generation = losing(1)
    (cut,) = cuts_of(store.records, generation)
    # As one does that is killed after it set the watermarks.
    store.set_watermarks(generation, cut.version, range(16))
    assert fold(store, generation, [cut])[0].folded
    assert_folded(store, generation, state(1))


def test_folding_again_that_was_broken_off_begins_with_all_that_was_lost(redis_server):
    store = open_store(redis_server.url)
    generation = full_export(store)
    client = redis_server.client()
    names = [n for n in client.scan_iter(count=1000) if b"!" not in n and n != b"hotrow:{hr}"]
    before = {name: client.dump(name) for name in names}
    with lock_exports(store.records, "m") as lock:
        for number in (1, 2):
            write(store, generation, lock, number)
        fold_all_but_the_records_of(store, generation, [0])  # it broke off at the second one
        for name, content in before.items():
            client.restore(name, 0, content, replace=True)
        fold_taken(store, generation, lock, undo_cuts=1)
    assert_folded(store, generation, state(2))
    client.close()
    store.close()


def test_a_cut_that_is_folded_again_is_not_taken_for_folded_before_that_is_proven(losing):
    """Its watermark stands for a moment without rows if a node goes back twice."""
    store, generation = losing(0)
    (cut,) = cuts_of(store.records, generation)
    (folded,) = fold(store, generation, [cut])
    for marker in markers_of(generation)[0]:
        store._redis.hset(marker, "wm", bytes(8))
    seen = []
    set_watermarks = store.set_watermarks

    def look(*arguments):
        set_watermarks(*arguments)
        store._lose()
        seen.append(cuts_of(store.records, generation)[0].folded)

    store.losses, store.set_watermarks = 1, look
    assert fold(store, generation, [folded])[0].folded
    assert seen == [False]
    assert_folded(store, generation, state(1))


def test_a_store_that_loses_rows_after_every_write_ends_the_folding_with_an_error(losing):
    store, generation = losing(0)
    (cut,) = cuts_of(store.records, generation)
    store.losses = 100
    put = store._store.put

    def losing_put(*arguments):
        written = put(*arguments)
        store._lose()
        return written

    store.put = losing_put
    with pytest.raises(DataLossError, match="keeps losing what was folded"):
        fold(store, generation, [cut])
    assert not cuts_of(store.records, generation)[0].folded
    del store.put
    store.losses = 0
    assert fold(store, generation, [cut])[0].folded
    assert_folded(store, generation, state(1))


@pytest.mark.parametrize("lost_at", [0, 1, 5])
def test_cuts_that_are_folded_at_once_write_the_newest_row_of_each_key(redis_server, lost_at):
    """A node goes back while the second of four groups of shards is put, or not at all."""
    store = open_store(redis_server.url)
    generation = full_export(store)
    for number in (1, 2, 3):
        with lock_exports(store.records, "m") as lock:
            write(store, generation, lock, number)
    client = redis_server.client()
    names = [n for n in client.scan_iter(count=1000) if b"!" not in n and n != b"hotrow:{hr}"]
    before = {name: client.dump(name) for name in names}
    cuts = cuts_of(store.records, generation)
    changed = {
        int(key) for cut in cuts for b in read_blocks(store, generation, cut) for key in b.keys
    }
    written = []
    put = store.put

    def counted(*arguments):
        if len(written) == lost_at:
            for name, content in before.items():
                client.restore(name, 0, content, replace=True)
        written.append(put(*arguments))
        return written[-1]

    store.put = counted
    folded = fold(store, generation, cuts)
    assert [cut.folded for cut in folded] == [True] * 3
    assert cuts_of(store.records, generation) == folded
    for cut in folded[:-1]:
        forget_cuts(store, generation, [cut])
    assert_folded(store, generation, state(3))
    assert sum(written) >= len(changed)
    if not lost_at:  # nothing was written before
        assert sum(written) == len(changed)
    client.close()
    store.close()


@pytest.mark.parametrize("most", [1, 1 << 40])
def test_cuts_are_folded_at_once_as_far_as_memory_allows(redis_server, monkeypatch, most):
    monkeypatch.setattr(taken_cuts, "_BYTES_AT_ONCE", most)
    store = open_store(redis_server.url)
    generation = full_export(store)
    marks = []
    set_watermarks = store.set_watermarks
    store.set_watermarks = lambda g, version, *rest: (
        marks.append(version),
        set_watermarks(g, version, *rest),
    )
    with lock_exports(store.records, "m") as lock:
        cuts = [write(store, generation, lock, number) for number in (1, 2, 3)]
        fold_taken(store, generation, lock)
    at_once = [cuts[-1].version] if most > 1 else [cut.version for cut in cuts]
    assert sorted(set(marks)) == at_once
    assert_folded(store, generation, state(3))
    store.close()
