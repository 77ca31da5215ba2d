"""A checkpoint that one process writes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from hotrow.errors import ResourceExhaustedError
from hotrow.ops.ranks import Ranks
from hotrow.sealed_directory import read_manifest, remove_leftovers, seal_of, sealing
from hotrow.trainer.checkpoint.directory import CheckpointDirectory
from hotrow.trainer.checkpoint.outcome import (
    EXPECTED,
    AbandonedError,
    Outcome,
    as_failure,
    no_room,
)
from hotrow.trainer.checkpoint.parts import nonfinite_rows
from hotrow.trainer.checkpoint.snapshot import TrainingSnapshot
from hotrow.trainer.checkpoint.stored import TABLES


class LoneWrite:
    """A checkpoint that one process writes, in a thread of its own.

    Attributes:
        step: step of the checkpoint.
        chain: name and seal of each checkpoint that it builds on.
        last: whether it is the last of the run.
        seal: seal of the manifest, once the write is over.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        take: Callable[[], TrainingSnapshot],
        step: int,
        chain: list[tuple[str, str]],
        keeps: bool,
        last: bool,
        ranks: Ranks,
    ) -> None:
        """Takes the snapshot and starts to write; the arguments are those of `SharedWrite`.

        Raises:
            HotrowError: the snapshot cannot be taken.
        """
        self._begin = time.monotonic()
        self.step = step
        self.chain = chain
        self.last = last
        self.seal = ""
        self._directory = directory
        self._keeps = keeps
        self._abandoned = threading.Event()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._bytes = 0
        self._nonfinite_rows: dict[str, int] = {}
        self._seconds = 0.0
        try:
            self._snapshot = take()
        except EXPECTED as err:
            failure = as_failure(err)
            failure.on_all_ranks = True  # this is the only rank
            raise failure from err
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._stall = time.monotonic() - self._begin
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether the checkpoint is written, or has failed."""
        return self._done.is_set()

    def report(self) -> None:
        """Returns nothing: there are no other ranks."""

    def receive(self, reports: list[Any]) -> None:
        """Does nothing: the thread needs no reports."""

    def wait(self) -> None:
        """Returns when the thread has ended."""
        self._thread.join()

    def close(self, abandon: bool) -> None:
        """Waits for the end of the write, or abandons it."""
        if abandon:
            self._abandoned.set()
        self._thread.join()

    def outcome(self, waited: float) -> Outcome | None:
        """Returns the outcome of the write once it is over; None: it was abandoned.

        Raises:
            Exception: an unexpected error that ended the write.
        """
        if isinstance(self._error, AbandonedError):
            return None
        if self._error is not None and not isinstance(self._error, EXPECTED):
            raise self._error
        failure = None if self._error is None else as_failure(self._error)
        return Outcome(
            self._snapshot.position,
            self._snapshot.kind,
            self._bytes,
            self._seconds,
            self._stall + waited + self._snapshot.waited_seconds,
            failure,
            self._nonfinite_rows,
        )

    def _run(self) -> None:
        try:
            self._write()
            if self._keeps:
                self._snapshot.keep()
            self._seconds = time.monotonic() - self._begin
        except BaseException as err:
            self._error = err
        try:
            self._snapshot.close()
            if self._error is None:
                self._directory.prune(self.step)
        except BaseException as err:
            self._error = self._error or err
        self._done.set()

    def _write(self) -> None:
        path = self._directory.path
        path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        needed = self._snapshot.bytes_needed
        free = shutil.disk_usage(path).free
        if needed > free:
            raise ResourceExhaustedError(no_room(needed, free, path))
        final = self._directory.of_step(self.step)
        facts: dict[str, Any] = {
            "base": self.chain[0][0] if self.chain else final.name,
            "parents": [name for name, _ in self.chain],
            "parent_seals": [seal for _, seal in self.chain],
        }
        hashed: dict[str, Any] = {}
        try:
            # An existing one is damaged; otherwise this run would not be at this step again.
            with sealing(final, facts, hashed, replace=True) as directory:
                (directory / TABLES).mkdir()
                entries = self._snapshot.write(directory, hashed, self._check)
                facts |= self._snapshot.facts([entries])
        except ResourceExhaustedError as err:
            free = shutil.disk_usage(path).free
            raise ResourceExhaustedError(f"{err}: {no_room(needed, free, path)}") from err
        manifest = read_manifest(final)
        self.seal = seal_of(manifest)
        self._bytes = sum(file["bytes"] for file in manifest["files"].values())
        self._nonfinite_rows = nonfinite_rows(manifest["tables"])

    def _check(self) -> None:
        if self._abandoned.is_set():
            raise AbandonedError
