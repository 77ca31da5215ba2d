"""Cuts are folded by a process of its own, which ends with its trainer and is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import start_child
from integration.online.online_run import folders_of
from integration.store.trained_states import assert_folded, full_export, state, write
from waiting import wait_until

from hotrow.errors import DataLossError
from hotrow.hold_bounds import HoldBounds
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import cuts_of
from hotrow.store.leases import lock_exports
from hotrow.store.undo import undos_of
from hotrow.trainer.online.publishing import folder as folder_module
from hotrow.trainer.online.publishing.counts import PublishCounts
from hotrow.trainer.online.publishing.folder import CutFolder

# A trainer as far as its folder goes; it prints a line for each change of the counts.
_TRAINER = """
import sys, time
from hotrow.hold_bounds import HoldBounds
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.trainer.online.publishing.counts import PublishCounts
from hotrow.trainer.online.publishing.folder import CutFolder

url, generation = sys.argv[1:]
store = open_store(url)
counts = PublishCounts()
folder = CutFolder(
    url, StoreAccess(), seconds=0.1, undo_cuts=0, bounds=HoldBounds(), counts=counts, report=print
)
folder.follow(Generations(store.records).get(generation), lock_exports(store.records, "m"))
while not counts.folded:
    time.sleep(0.01)
print("folded", flush=True)
time.sleep(600)
"""


class Trained:
    """A generation whose cuts a trainer writes and has folded.

    Attributes:
        lines: what the folder has reported.
    """

    def __init__(self, url: str) -> None:
        self.store = open_store(url)
        self.generation = full_export(self.store)
        self.lock = lock_exports(self.store.records, "m")
        self.lines: list[str] = []
        self.folder = CutFolder(
            url,
            StoreAccess(),
            seconds=0.1,
            undo_cuts=1,
            bounds=HoldBounds(),
            counts=PublishCounts(),
            report=self.lines.append,
        )

    def write(self, number: int) -> None:
        """Commits the changes up to a state."""
        write(self.store, self.generation, self.lock, number)

    def follow(self) -> None:
        """Has the cuts folded."""
        self.folder.follow(self.generation, self.lock)

    def start(self) -> int:
        """Commits a cut and has it folded; returns the id of the process."""
        self.write(1)
        self.follow()
        self.await_folded(1)
        (pid,) = folders_of(os.getpid())
        return pid

    def folded(self) -> list[bool]:
        """Returns which of the cuts are folded."""
        return [cut.folded for cut in cuts_of(self.store.records, self.generation)]

    def await_folded(self, number: int) -> None:
        """Waits until one cut is left, which is folded, and checks the rows.

        Notes of what was staged go after the records of the cuts before it.
        """
        wait_until(
            lambda: self.folded() == [True] and not self.store.records.names("staging/"),
            lambda: (self.folded(), self.folder.failure),
        )
        assert_folded(self.store, self.generation, state(number))

    def close(self) -> None:
        """Ends the process and releases the lock."""
        self.folder.close()
        self.lock.release()
        self.store.close()


@pytest.fixture
def trained(redis_server: Any) -> Iterator[Trained]:
    made = Trained(redis_server.url)
    yield made
    made.close()


def has_ended(pid: int) -> bool:
    """Returns whether a process has ended, waited for or not."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_process_folds_until_it_is_held(trained: Trained) -> None:
    pid = trained.start()
    wait_until(lambda: trained.folder.counts.folded > 0)
    trained.folder.hold()
    trained.write(2)
    trained.folder.keep_one_more()
    trained.folder.hold()
    assert trained.folded() == [True, False]
    trained.follow()
    trained.await_folded(2)
    wait_until(lambda: trained.folder.counts.unfolded_cuts == 0)
    assert len(undos_of(trained.store.records, trained.generation)) == 2
    assert folders_of(os.getpid()) == [pid]
    trained.folder.close()
    assert not folders_of(os.getpid())


def test_a_process_that_was_killed_is_a_failure_and_replaced(trained: Trained) -> None:
    first = trained.start()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: trained.folder.failure is not None)
    assert str(trained.folder.failure) == "the process that folds cuts has ended: signal 9"
    trained.folder.hold()
    trained.write(2)
    trained.follow()
    assert trained.folder.failure is None
    trained.await_folded(2)
    (second,) = folders_of(os.getpid())
    assert second != first


def test_a_process_that_does_not_answer_is_killed(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_HOLD_SECONDS", 0.2)
    pid = trained.start()
    os.kill(pid, signal.SIGSTOP)
    trained.folder.hold()
    assert has_ended(pid)
    assert trained.lines == [
        "the process that folds cuts has not answered for 0.2 s: it is killed, and another one "
        "goes on"
    ]
    trained.write(2)
    trained.follow()
    trained.await_folded(2)


def test_a_failure_of_the_process_is_that_of_the_folder(trained: Trained) -> None:
    trained.write(1)
    (cut,) = cuts_of(trained.store.records, trained.generation)
    trained.store.unstage(trained.generation, cut.version, list(cut.places[:1]))
    trained.follow()
    wait_until(lambda: trained.folder.failure is not None)
    assert isinstance(trained.folder.failure, DataLossError)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_of_a_trainer_is_left_to_the_trainer(
    number: signal.Signals, trained: Trained
) -> None:
    pid = trained.start()
    os.kill(pid, number)
    trained.write(2)
    trained.await_folded(2)
    assert folders_of(os.getpid()) == [pid]


def test_the_end_of_a_trainer_folds_what_servers_have_taken(trained: Trained) -> None:
    trained.write(1)
    trained.follow()
    trained.folder.close()
    assert trained.folded() == [True]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_with_a_trainer_that_is_killed(
    number: signal.Signals, trained: Trained, redis_server: Any
) -> None:
    trained.write(1)
    trained.lock.release()
    arguments = [redis_server.url, trained.generation.generation]
    trainer = start_child(
        [sys.executable, "-c", _TRAINER, *arguments], stdout=subprocess.PIPE, text=True
    )
    with trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "folded\n"
        (pid,) = folders_of(trainer.pid)
        trainer.send_signal(number)
        wait_until(lambda: has_ended(pid), seconds=10)


def test_cuts_are_published_while_the_process_is_stopped(trained: Trained) -> None:
    pid = trained.start()
    os.kill(pid, signal.SIGSTOP)
    resume = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
    resume.start()
    try:
        trained.write(2)
        assert trained.folded() == [True, False]
    finally:
        resume.join()
    trained.await_folded(2)
