"""Has cuts folded by a process of its own, beside training and publishing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from hotrow.errors import HotrowError
from hotrow.hold_bounds import HoldBounds
from hotrow.store.access import StoreAccess
from hotrow.store.leases import ExportLock
from hotrow.store.spec import Generation
from hotrow.trainer.agreement import error_of
from hotrow.trainer.online.publishing.counts import PublishCounts
from hotrow.trainer.online.publishing.folding import END_SECONDS

_HOLD_SECONDS = 30.0
"""How long the process may take to break off; calls of a store end before."""
_MARGIN_SECONDS = 5.0


class CutFolder:
    """The process that folds cuts, as the trainer sees it.

    In a thread of the trainer, folding would hold Python's lock while a step waits for it. The
    process starts with the first `follow`, and again if it was killed.

    Args:
        url: of the store.
        access: credentials.
        seconds: how long cuts are collected before they are folded.
        undo_cuts: for how many of the newest cuts to keep what they replace.
        bounds: how long a reader may hold up folding.
        counts: gets what is folded.
        report: called with lines for the user.

    Attributes:
        counts: of cuts.
        failure: why folding has failed; `follow` begins anew.
    """

    def __init__(
        self,
        url: str,
        access: StoreAccess,
        *,
        seconds: float,
        undo_cuts: int,
        bounds: HoldBounds,
        counts: PublishCounts,
        report: Callable[[str], None],
    ) -> None:
        self._store = {
            "url": url,
            "access": dataclasses.asdict(access),
            "seconds": seconds,
            "bounds": dataclasses.asdict(bounds),
        }
        self._undo_cuts = undo_cuts
        self.counts = counts
        self._report = report
        self.failure: HotrowError | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._holds = threading.Event()  # the process does, or there is none

    def follow(self, generation: Generation, lock: ExportLock) -> None:
        """Has the cuts of this generation folded from now on, while the export lock is held.

        Args:
            generation: with its current record.
            lock: the export lock.
        """
        self.failure = None
        if self._process is None or self._process.returncode is not None:
            self._start()
        self._send(
            follow=generation.model_dump(mode="json"),
            lock=lock.name,
            holder=lock.holder,
            undo_cuts=self._undo_cuts,
        )

    def hold(self) -> None:
        """Breaks off what is being folded; nothing is folded until `follow`."""
        process = self._process
        self._holds.clear()
        if process is None or process.returncode is not None:
            return
        self._send(hold=True)
        if not self._holds.wait(_HOLD_SECONDS):
            self._report(
                f"the process that folds cuts has not answered for {_HOLD_SECONDS:g} s: it is "
                "killed, and another one goes on"
            )
            self._end()

    def keep_one_more(self) -> None:
        """Keeps what one more cut replaces, from the next `follow` on."""
        self._undo_cuts += 1

    def close(self) -> None:
        """Folds what servers have taken, as far as that takes no longer than 10 s, and ends."""
        if self._reader is not None:
            self._send(close=True)
            self._reader.join(END_SECONDS + _MARGIN_SECONDS)
            self._end()

    def _start(self) -> None:
        self._end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hotrow.trainer.online.publishing.folder_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process,), name="folder", daemon=True
        )
        self._reader.start()
        self._send(open=self._store)

    def _end(self) -> None:
        """Kills the process, unless it has ended."""
        if self._process is None or self._reader is None:
            return
        self._process.kill()
        self._reader.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process = self._reader = None

    def _send(self, **order: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and the reader says so
            print(json.dumps(order), file=self._process.stdin, flush=True)

    # --- the reader's thread ---

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._receive(json.loads(line))
        code = process.wait()
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.failure = HotrowError(f"the process that folds cuts has ended: {ending}")
        self._holds.set()

    def _receive(self, answer: dict[str, Any]) -> None:
        if "counts" in answer:
            folded, self.counts.unfolded_cuts = answer["counts"]
            self.counts.folded = max(folded, self.counts.folded)
        elif "failure" in answer:
            self.failure = error_of(answer["failure"])
        elif "line" in answer:
            self._report(answer["line"])
        else:
            self._holds.set()
