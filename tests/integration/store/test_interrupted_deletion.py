"""Deletions that are interrupted, readers that are cut off, and exporters that were fenced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from stored_rows import ArrayRows, exported, float_rows, make_live, some_keys

from hotrow.cli.main import main
from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.store import open_store
from hotrow.store.deletion import delete_generation, delete_model, delete_unneeded
from hotrow.store.full_export import write_generation
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use, users
from hotrow.store.spec import Generation, State

MARK = """
import os, signal
generations.begin_deleting(generation)
os.kill(os.getpid(), signal.SIGKILL)
"""
MARK_AND_ASK = """
import os, signal
generations.note_unused(generations.begin_deleting(generation))
os.kill(os.getpid(), signal.SIGKILL)
"""
HOLD = """
import sys, time
from hotrow.store.readers import use
lease = use(store.records, generation.generation, "server-1", seconds=0.5)
print("held", flush=True)
while True:
    time.sleep(0.1)
"""
ROWS = 300


def export(store: Any, version: int) -> Generation:
    rows = ArrayRows("a", some_keys(ROWS), float_rows(ROWS, 4, version), pieces=2)
    with lock_exports(store.records, "m") as lock:
        generation = write_generation(store, exported(version), [rows], lock, shards=16)
        make_live(store, generation)
    return generation


def assert_whole(store: Any, generation: Generation) -> None:
    """Checks that a generation is complete and has exactly the rows of its version."""
    assert Generations(store.records).get(generation.generation).state is State.COMPLETE
    source = ArrayRows("a", some_keys(ROWS), float_rows(ROWS, 4, generation.version))
    rows, _, states = store.read(generation, 0, source.keys)
    assert (states == 1).all()
    assert (rows == source.rows).all()


@contextlib.contextmanager
def running(url: str, generation: Generation, program: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has opened the store."""
    head = (
        "from hotrow.store import open_store\n"
        "from hotrow.store.generations import Generations\n"
        f"store = open_store({url!r})\n"
        "generations = Generations(store.records)\n"
        f"generation = generations.get({generation.generation!r})\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", head + program], stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def run_and_kill(url: str, generation: Generation, program: str) -> None:
    with running(url, generation, program) as child:
        assert child.wait(30) == -signal.SIGKILL


def test_who_finds_the_mark_of_a_killed_deletion_asks_again(store: Any, store_url: str) -> None:
    old = export(store, 1)
    export(store, 2)
    with use(store.records, old.generation, "server-7"):
        run_and_kill(store_url, old, MARK)
        marked = Generations(store.records).get(old.generation)
        assert marked.state is State.DELETING
        with pytest.raises(FailedPreconditionError, match="in use by server-7"):
            delete_generation(store, marked)
        assert_whole(store, old)
        run_and_kill(store_url, old, MARK)
        lines: list[str] = []
        assert delete_unneeded(store, "m", 0, report=lines.append) == []
        assert_whole(store, old)
        run_and_kill(store_url, old, MARK)
        with pytest.raises(FailedPreconditionError, match="in use by server-7"):
            delete_model(store, "m", lambda generation: None)
    run_and_kill(store_url, old, MARK)
    delete_generation(store, Generations(store.records).get(old.generation))
    with pytest.raises(NotFoundError):
        Generations(store.records).get(old.generation)


def test_rows_that_may_be_gone_do_not_come_back(store: Any, store_url: str) -> None:
    old = export(store, 1)
    export(store, 2)
    run_and_kill(store_url, old, MARK_AND_ASK)
    with pytest.raises(FailedPreconditionError, match="is not complete and cannot be live"):
        make_live(store, old)
    # As one that came between the question and the mark would; it finds the state and ends.
    with use(store.records, old.generation, "server-8"):
        delete_generation(store, Generations(store.records).get(old.generation))
    assert old.generation not in {g.generation for g in Generations(store.records).all()}


def test_what_a_stopped_reader_reads_outlives_its_lease(store: Any, store_url: str) -> None:
    old = export(store, 1)
    with running(store_url, old, HOLD) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGSTOP)
        export(store, 2)
        export(store, 3)
        time.sleep(0.6)
        assert users(store.records, old.generation) == [], "its lease has ended"
        assert delete_unneeded(store, "m", 2) == []
        with pytest.raises(FailedPreconditionError, match=r"server-1 \(its lease ended \d s ago"):
            delete_generation(store, old)
        assert_whole(store, old)
        os.kill(child.pid, signal.SIGCONT)
        end = time.monotonic() + 10
        while users(store.records, old.generation) != ["server-1"] and time.monotonic() < end:
            time.sleep(0.05)
        assert users(store.records, old.generation) == ["server-1"]
    time.sleep(0.6)
    # Its operator knows that it is dead.
    delete_generation(store, old, unseen_seconds=0)


def test_a_reader_that_was_stopped_in_order_keeps_nothing(store: Any) -> None:
    old = export(store, 1)
    with use(store.records, old.generation, "server-7"):
        export(store, 2)
        export(store, 3)
        assert delete_unneeded(store, "m", 2) == []
    assert delete_unneeded(store, "m", 2) == [old]


def test_an_exporter_that_slept_does_not_move_the_live_version_back(store: Any) -> None:
    generations = Generations(store.records)
    export(store, 1)
    slept = generations.next_epoch("m")
    rows = ArrayRows("a", some_keys(ROWS), float_rows(ROWS, 4, 2), pieces=2)
    lock = lock_exports(store.records, "m", seconds=60)
    second = write_generation(store, exported(2), [rows], lock, shards=16, writer=slept)
    lock.release()  # as if it had slept for longer than the lock lasts
    third = export(store, 3)
    with pytest.raises(FailedPreconditionError, match="another export has begun since"):
        generations.make_live(second, slept)
    assert generations.model("m").live == third.generation


def test_a_generation_that_is_being_deleted_does_not_become_live(store: Any) -> None:
    generations = Generations(store.records)
    old = export(store, 1)
    export(store, 2)
    writer = generations.next_epoch("m")
    generations.begin_deleting(old)
    with pytest.raises(FailedPreconditionError, match="not complete and cannot be live"):
        generations.make_live(old, writer)


def test_delete_says_how_to_go_on(store: Any, store_url: str, capsys: Any) -> None:
    exporter = open_store(store_url)
    old = export(exporter, 1)
    export(exporter, 2)
    exporter.close()
    with running(store_url, old, HOLD) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
    time.sleep(0.6)
    assert main(["delete", store_url, "--generation", old.generation]) == 1
    assert "--unseen_seconds" in capsys.readouterr().err
    command = ["delete", store_url, "--generation", old.generation, "--unseen_seconds", "0"]
    assert main(command) == 0
