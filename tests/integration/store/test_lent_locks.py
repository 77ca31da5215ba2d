"""An export lock that is lent is never free, and comes back whatever the borrower does."""

from __future__ import annotations

import signal
import threading

import pytest
from integration.store.lenders import holder, killed_holder
from waiting import wait_until

from hotrow.errors import FailedPreconditionError
from hotrow.store.leases import exporter_of, lock_exports


@pytest.fixture
def lock(store):
    with lock_exports(store.records, "m", seconds=1, trainer="runs/a", admin="host:1") as lock:
        yield lock


def assert_held(records):
    """Also by a holder that takes what an ended process has left."""
    with pytest.raises(FailedPreconditionError, match="export/m is held by"):
        lock_exports(records, "m")


def test_it_is_held_by_one_of_two_at_any_time(store, lock):
    free, done = [], threading.Event()

    def take() -> None:
        while not done.is_set():
            try:
                free.append(lock_exports(store.records, "m"))
                return
            except FailedPreconditionError:
                pass

    taking = threading.Thread(target=take)
    taking.start()
    for _ in range(20):
        with lock.lend() as lender:
            borrowed = lock_exports(store.records, "m", lender=lender)
            assert exporter_of(store.records, "m").holder == borrowed.holder
            borrowed.check()
            borrowed.release()
        lock.check()
        assert exporter_of(store.records, "m").holder == lender
    done.set()
    taking.join()
    assert not free


def test_its_record_names_the_trainer_and_the_export(store, lock):
    with lock.lend() as lender, lock_exports(store.records, "m", lender=lender):
        found = exporter_of(store.records, "m")
        assert (found.trainer, found.admin) == ("runs/a", "host:1")
        with pytest.raises(
            FailedPreconditionError,
            match="it is a full export of the trainer of runs/a: stop the trainer first; if the "
            "trainer has ended, wait until the export has",
        ):
            lock_exports(store.records, "m")


def test_the_lender_may_wait_for_longer_than_its_lease_lasts(store, lock):
    with lock.lend() as lender:
        with lock_exports(store.records, "m", seconds=1, lender=lender) as borrowed:
            assert lock.lost.wait(60), "noted by a renewal"
            borrowed.confirm()
        wait_until(lambda: not lock.lost.is_set())
    lock.confirm()
    assert_held(store.records)


def test_it_cannot_be_borrowed_from_a_trainer_that_does_not_hold_it(store):
    lock = lock_exports(store.records, "m", trainer="runs/a")
    with lock.lend() as lender:
        pass
    lock.release()
    refusal = f"export/m is not held any more by {lender}, the trainer that began this export"
    with pytest.raises(FailedPreconditionError, match=refusal):
        lock_exports(store.records, "m", lender=lender)
    with (
        lock_exports(store.records, "m"),
        pytest.raises(FailedPreconditionError, match=refusal),
    ):
        lock_exports(store.records, "m", lender=lender)


def test_a_lost_lock_is_not_lent(store, lock):
    text = store.records.get("export/m")
    assert store.records.swap("export/m", text, '{"holder": "other", "until": 99999999999999}')
    with pytest.raises(FailedPreconditionError, match="export/m was lost"), lock.lend():
        pass


@pytest.mark.parametrize("killed", [False, True])
def test_a_borrower_that_ends_or_is_killed_leaves_it_to_the_lender(store, store_url, killed):
    lock = lock_exports(store.records, "m", trainer="runs/a")
    with lock.lend() as lender, holder(store_url, "m", "", lender) as (borrower, name):
        assert exporter_of(store.records, "m").holder == name
        assert_held(store.records)
        if killed:
            borrower.kill()
    assert borrower.returncode == (-signal.SIGKILL if killed else 0)
    assert lock.lost.is_set() == killed
    lock.release()
    lock_exports(store.records, "m").release()


def test_a_borrower_leaves_nothing_to_a_lender_that_has_ended(store, store_url):
    lender = killed_holder(store_url, "m", "runs/a")
    borrowed = lock_exports(store.records, "m", lender=lender)
    assert_held(store.records)
    borrowed.release()
    assert store.records.get("export/m") is None
