"""Files that several processes use, some of which are killed or stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.store.random_generations import new_generation, random_rows, versions, written

from hotrow.errors import UnavailableError
from hotrow.store import open_store

# LMDB itself, as a reader that takes all it can get.
READERS = """
import ctypes, ctypes.util, sys, time
lmdb = ctypes.CDLL(ctypes.util.find_library("lmdb"))
env, txn = ctypes.c_void_p(), ctypes.c_void_p()
assert lmdb.mdb_env_create(ctypes.byref(env)) == 0
assert lmdb.mdb_env_open(env, sys.argv[1].encode(), 0x200000, 0o644) == 0
taken = 0
while taken < int(sys.argv[2]) and not lmdb.mdb_txn_begin(env, None, 0x20000, ctypes.byref(txn)):
    taken += 1
print(taken, flush=True)
time.sleep(100)
"""
# A writer of ours in the middle of a transaction.
WRITER = """
import ctypes, ctypes.util, fcntl, sys, time
lmdb = ctypes.CDLL(ctypes.util.find_library("lmdb"))
env, txn = ctypes.c_void_p(), ctypes.c_void_p()
assert lmdb.mdb_env_create(ctypes.byref(env)) == 0
assert lmdb.mdb_env_open(env, sys.argv[1].encode(), 0x200000, 0o644) == 0
turn = open(sys.argv[1] + "/data.mdb", "r+b")
fcntl.flock(turn, fcntl.LOCK_EX)
assert lmdb.mdb_txn_begin(env, None, 0, ctypes.byref(txn)) == 0
print("writing", flush=True)
time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a store."""
    return tmp_path / "store"


@contextlib.contextmanager
def running(program: str, *arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process, and the line that it prints."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_the_slots_of_killed_readers_are_used_again(folder: Path) -> None:
    with contextlib.closing(open_store(f"file://{folder}", create=True)) as store:
        written(store)
        with running(READERS, folder, 5000) as (_, taken):
            assert 0 < int(taken) <= 1024
            assert "MDB_READERS_FULL" in answer_of_a_new_reader(folder)
        assert answer_of_a_new_reader(folder) == "['number']"


def answer_of_a_new_reader(folder: Path) -> str:
    """Returns the names of the records, or the error, that a new process gets."""
    program = (
        "import sys\n"
        "from hotrow.errors import HotrowError\n"
        "from hotrow.store import open_store\n"
        "try:\n"
        "    print(open_store('file://' + sys.argv[1]).records.names('number'))\n"
        "except HotrowError as err:\n"
        "    print(err)\n"
    )
    command = [sys.executable, "-c", program, folder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_pages_that_a_killed_reader_saw_are_used_again(folder: Path) -> None:
    with contextlib.closing(open_store(f"file://{folder}", create=True)) as store:
        generation, keys, rows = written(store, rows=20_000)
        with running(READERS, folder, 1) as (_, taken):
            assert taken == "1"

        def write(first: int, count: int) -> int:
            for number in range(first, first + count):
                assert store.put(generation, 0, keys, rows, versions(len(keys), 2**60 + number))
            return (folder / "data.mdb").stat().st_size

        time.sleep(1.1)  # a writer looks once in a second
        size = write(0, 4)
        assert write(4, 16) < 1.5 * size


def test_a_writer_that_is_stopped_does_not_stop_others_for_ever(folder: Path) -> None:
    url = f"file://{folder}"
    with contextlib.closing(open_store(url, create=True, patience_seconds=0.4)) as store:
        assert store.records.swap("a", None, "1")
        other = new_generation(store, rows=10)
        with running(WRITER, folder) as (child, line):
            assert line == "writing"
            os.kill(child.pid, signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(
                UnavailableError,
                match=rf"{folder}, control records: process {child.pid} \(python\S*\), which is "
                r"stopped, has kept others from writing for 0\.4 s; end it",
            ):
                store.records.swap("a", "1", "2")
            assert time.monotonic() - began < 5
            assert store.records.get("a") == "1", "reading goes on"
            with pytest.raises(UnavailableError, match="has kept others from writing"):
                store.write(other, 0, *random_rows(10))
        assert store.records.swap("a", "1", "2"), "the kernel gives the turn of a killed one back"
