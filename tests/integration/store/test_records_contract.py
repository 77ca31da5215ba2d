"""What control records of every store do, and what is written over them."""

from __future__ import annotations

import concurrent.futures
import time
from dataclasses import replace

import pytest

from hotrow.errors import FailedPreconditionError
from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.store.leases import Lease, lock_exports
from hotrow.store.readers import Reader, forget_users, readers, use, users


def test_a_record_changes_only_when_it_is_as_expected(store):
    records = store.records
    assert records.get("a/1") is None
    assert records.swap("a/1", None, "x")
    assert not records.swap("a/1", None, "y")
    assert not records.swap("a/1", "z", "y")
    assert records.swap("a/1", "x", 'ü "quoted"\n')
    assert records.get("a/1") == 'ü "quoted"\n'
    assert records.swap("a/1", 'ü "quoted"\n', None)
    assert records.get("a/1") is None
    assert not records.swap("a/1", "x", None)


def test_names_are_listed_by_their_prefix(store):
    for name in ("b/2", "a/1", "b/1", "c"):
        assert store.records.swap(name, None, "text")
    assert store.records.names("b/") == ["b/1", "b/2"]
    assert store.records.names("d") == []
    assert set(store.records.names("")) >= {"a/1", "b/1", "b/2", "c"}


def test_texts_are_read_by_their_prefix(store):
    texts = {"b/1": "one", "b/2": "ü\n", "lease/g/x": "held", "lease/g/y": "held, too"}
    for name, text in {**texts, "c": "other"}.items():
        assert store.records.swap(name, None, text)
    assert store.records.texts("b/") == {"b/1": "one", "b/2": "ü\n"}
    assert list(store.records.texts("b/")) == ["b/1", "b/2"]
    assert store.records.texts("lease/g/") == {"lease/g/x": "held", "lease/g/y": "held, too"}
    assert store.records.texts("d") == {}


def test_numbers_are_never_given_twice(store, store_url):
    def take(_: int) -> list[int]:
        mine = open_store(store_url)
        numbers = [mine.records.next_number() for _ in range(25)]
        mine.close()
        return numbers

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        numbers = [n for taken in pool.map(take, range(4)) for n in taken]
    assert min(numbers) >= 1
    assert len(set(numbers)) == 100


def test_no_swap_is_lost_among_many_writers(store, store_url):
    store.records.swap("count", None, "0")

    def add(_: int) -> None:
        mine = open_store(store_url)
        for _ in range(25):
            while True:
                text = mine.records.get("count")
                if mine.records.swap("count", text, str(int(text) + 1)):
                    break
        mine.close()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert store.records.get("count") == "100"


def test_the_clock_goes_forward_in_milliseconds(store):
    first = store.records.now_ms()
    time.sleep(0.05)
    assert 40 <= store.records.now_ms() - first < 5000
    assert abs(first / 1000 - time.time()) < 60


def test_a_lease_has_one_holder_until_it_is_released(store):
    with lock_exports(store.records, "m"):
        with pytest.raises(FailedPreconditionError, match=r"export/m is held by export-.*wait"):
            lock_exports(store.records, "m")
        lock_exports(store.records, "other").release()
    lock_exports(store.records, "m").release()


def test_a_lease_is_renewed_while_its_holder_lives_and_ends_when_it_does_not(store):
    lease = Lease(store.records, "lease/g/me", 0.4, "me")
    time.sleep(1.0)
    with pytest.raises(FailedPreconditionError):
        Lease(store.records, "lease/g/me", 0.4, "somebody")
    lease._released.set()  # as if the process had died
    time.sleep(0.6)
    taken = Lease(store.records, "lease/g/me", 0.4, "somebody")
    assert not taken.lost.is_set()
    taken.release()


def test_a_lease_that_somebody_else_took_is_lost(store):
    lease = Lease(store.records, "export/m", 0.3, "me")
    text = store.records.get("export/m")
    assert store.records.swap("export/m", text, '{"holder": "thief", "until": 99999999999999}')
    assert lease.lost.wait(5)
    lease.release()
    assert "thief" in store.records.get("export/m")


def test_users_of_a_generation_are_those_with_a_lease(store):
    assert users(store.records, "g") == []
    with use(store.records, "g", "server-1"), use(store.records, "g", "server-2"):
        assert users(store.records, "g") == ["server-1", "server-2"]
        assert users(store.records, "h") == []
    assert users(store.records, "g") == []


def a_complete_generation(records):
    generations = Generations(records)
    begun = generations.begin(model="m", version=1, step=1, source="", schema_hash="", tables=[])
    return generations.complete(begun, [])


def test_a_reader_notes_the_cut_that_it_answers_by_and_renewals_keep_it(store):
    name = a_complete_generation(store.records).generation
    with use(store.records, name, "server", seconds=0.6) as lease:
        (reader,) = readers(store.records, name)
        assert (reader.holder, reader.cut) == ("server", 0)
        lease.note_cut(1 << 40 | 3)
        (noted,) = readers(store.records, name)
        assert noted.cut == 1 << 40 | 3
        time.sleep(0.5)
        (renewed,) = readers(store.records, name)
        assert renewed == replace(noted, until_ms=renewed.until_ms)
        assert renewed.until_ms > noted.until_ms
    assert readers(store.records, name) == []
    with pytest.raises(FailedPreconditionError, match="was released"):
        lease.note_cut(5)


def test_readers_that_know_no_cuts_have_none(store):
    until = store.records.now_ms() + 5000
    store.records.swap("lease/g/old", None, f'{{"holder": "old", "until": {until}}}')
    assert readers(store.records, "g") == [Reader("old", 0, until)]


def lose_the_lease(records, generation):
    """Removes the record of a lease that is being renewed, as `forget_users` alone may fail to."""
    while readers(records, generation):
        forget_users(records, generation)


def test_a_reader_takes_its_lease_anew_when_it_was_lost(store):
    name = a_complete_generation(store.records).generation
    with use(store.records, name, "server", seconds=0.9) as lease:
        lease.note_cut(7)
        # As a failover does, to a replica that never received it.
        lose_the_lease(store.records, name)
        time.sleep(0.5)
        assert [r.cut for r in readers(store.records, name)] == [7]
        forget_users(store.records, name)
        lease.note_cut(8)
        assert [r.cut for r in readers(store.records, name)] == [8]
        assert not lease.lost.is_set()


def test_a_reader_whose_generation_was_deleted_has_lost_its_lease(store):
    generation = a_complete_generation(store.records)
    generations = Generations(store.records)
    name = generation.generation
    with use(store.records, name, "server", seconds=0.3) as lease:
        deleting = generations.begin_deleting(generation)
        assert not lease.lost.wait(0.5), "deletion finds it, and keeps the generation"
        lose_the_lease(store.records, name)
        assert lease.lost.wait(2)
        assert users(store.records, name) == []
        with pytest.raises(FailedPreconditionError, match="was deleted; export again"):
            lease.note_cut(9)
        generations.keep(deleting)
        time.sleep(0.3)
        assert [r.cut for r in readers(store.records, name)] == [9], "it is there again"
        assert not lease.lost.is_set()
        generations.forget(generation)
        assert lease.lost.wait(2), "although its record is still there"
    assert store.records.names("lease/") == []


def test_several_records_change_together_or_not_at_all(store):
    records = store.records
    assert records.swap_all([("a", None, "1"), ("b", None, "2")])
    assert not records.swap_all([("a", "1", "3"), ("b", "9", "3")])
    assert not records.swap_all([("a", "1", "3"), ("c", "9", "3")])
    assert (records.get("a"), records.get("b"), records.get("c")) == ("1", "2", None)
    assert records.swap_all([("a", "1", None), ("b", "2", "4"), ("c", None, "5")])
    assert (records.get("a"), records.get("b"), records.get("c")) == (None, "4", "5")
