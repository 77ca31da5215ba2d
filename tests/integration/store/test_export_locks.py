"""Locks of exports: one exporter at a time, and none waits for one that has surely ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from hotrow.errors import FailedPreconditionError
from hotrow.store.leases import exporter_of, lock_exports
from hotrow.store.process_identity import has_ended, identity_of

LOCK = "export/m"
HOLDER = """
import signal, sys
from hotrow.store import open_store
from hotrow.store.leases import exporter_of, lock_exports
store = open_store(sys.argv[1])
with lock_exports(store.records, "m"):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def store(redis, open_redis):
    return open_redis(redis.url)


@pytest.fixture
def elsewhere(redis):
    """Another process that holds the lock."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, redis.url], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def assert_held(store):
    with pytest.raises(FailedPreconditionError, match=f"{LOCK} is held by export-"):
        lock_exports(store.records, "m")


def test_the_lock_of_an_ended_export_that_a_store_brings_back_is_free(store, redis):
    """As of an export in this process, a notebook or a trainer that goes on."""
    with lock_exports(store.records, "m"):
        during = redis.snapshot()
    redis.go_back(during)
    assert store.records.get(LOCK) is not None
    with lock_exports(store.records, "m"):
        assert_held(store)
    assert store.records.get(LOCK) is None


def test_the_lock_of_a_killed_exporter_is_free_and_that_of_a_stopped_one_is_not(store, elsewhere):
    assert_held(store)
    elsewhere.send_signal(signal.SIGSTOP)
    assert_held(store)
    elsewhere.kill()
    elsewhere.wait()
    with lock_exports(store.records, "m") as lock:
        lock.check()


def test_a_running_exporter_keeps_its_lock_when_the_store_goes_back(store, redis, elsewhere):
    during = redis.snapshot()
    redis.go_back(during)
    assert_held(store)
    elsewhere.send_signal(signal.SIGSTOP)
    redis.go_back(during)
    assert_held(store)


@pytest.mark.parametrize("part", ["boot", "namespace", None])
def test_the_lock_of_a_process_that_this_one_cannot_know_stands_until_it_expires(store, part):
    boot, namespace, pid, start = identity_of(os.getpid()).split("/")
    there = {"boot": "other", "namespace": namespace} if part == "boot" else {"boot": boot}
    process = f"{there['boot']}/{there.get('namespace', 'pid:[1]')}/{pid}/{int(start) - 1}"
    until = store.records.now_ms() + 5000
    held = {"holder": "export-other", "until": until, **({"process": process} if part else {})}
    assert store.records.swap(LOCK, None, json.dumps(held))
    assert_held(store)


def test_a_process_is_known_by_its_start_beside_its_number():
    identity = identity_of(os.getpid())
    where, _, start = identity.rpartition("/")
    assert not has_ended(identity)
    assert has_ended(f"{where}/{int(start) - 1}")  # it had this pid before
    assert not has_ended("")
    assert not has_ended("no identity")
    child = subprocess.Popen(["sleep", "60"])
    identity = identity_of(child.pid)
    assert identity
    assert not has_ended(identity)
    child.kill()
    child.wait()
    assert has_ended(identity)


def test_the_lock_of_a_trainer_says_where_it_answers(store):
    assert exporter_of(store.records, "m") is None
    with lock_exports(store.records, "m", trainer="shop", admin="train-3:8600"):
        found = exporter_of(store.records, "m")
        assert (found.trainer, found.admin) == ("shop", "train-3:8600")
        assert found.process == identity_of(os.getpid())
        assert exporter_of(store.records, "other") is None
        with pytest.raises(
            FailedPreconditionError, match=r"trainer of shop,.* answers at train-3:8600"
        ):
            lock_exports(store.records, "m")
    assert exporter_of(store.records, "m") is None


def test_the_lock_of_a_trainer_without_an_address_names_the_run(store):
    with (
        lock_exports(store.records, "m", trainer="shop"),
        pytest.raises(FailedPreconditionError, match=r"trainer of shop,.*stop it first"),
    ):
        lock_exports(store.records, "m")


def test_the_lock_of_an_export_names_no_address(store):
    with lock_exports(store.records, "m") as lock:
        assert exporter_of(store.records, "m").admin == ""
        with pytest.raises(FailedPreconditionError, match="wait until it has ended"):
            lock_exports(store.records, "m")
        lock.check()


def test_a_lock_that_has_expired_has_no_holder(store):
    past = store.records.now_ms() - 1
    record = json.dumps({"format": 1, "holder": "export-1", "until": past, "admin": "a:1"})
    assert store.records.swap(LOCK, None, record)
    assert exporter_of(store.records, "m") is None
