"""The process that folds cuts; it gets orders of `CutFolder`, and answers, by lines of JSON.

It imports no TensorFlow. When its orders end without one to close, the trainer has ended, and so
does this process, at once: what is not folded is left to the next trainer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from hotrow.errors import HotrowError
from hotrow.hold_bounds import HoldBounds
from hotrow.store.access import StoreAccess
from hotrow.store.spec import Generation
from hotrow.thread_priority import lower_priority
from hotrow.trainer.agreement import error_report
from hotrow.trainer.online.publishing.folding import Folding
from hotrow.trainer.online.publishing.online_store import open_online_store


class _Answers:
    """Writes answers to the standard output, from any thread; what others print goes elsewhere."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._writing = threading.Lock()
        self._counts: list[int] = []

    def send(self, **answer: Any) -> None:
        """Sends an answer."""
        with self._writing:
            try:
                print(json.dumps(answer), file=self._file, flush=True)
            except BrokenPipeError:
                os._exit(1)  # the trainer has ended

    def note(self, *counts: int) -> None:
        """Sends counts that differ from the last ones."""
        if list(counts) != self._counts:
            self._counts = list(counts)
            self.send(counts=self._counts)

    def fail(self, failure: HotrowError) -> None:
        """Sends why folding has failed."""
        self.send(failure=error_report(failure))


def main() -> None:
    """Folds until the order to close, or until the trainer has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the trainer gets these, too, and closes
        signal.signal(number, signal.SIG_IGN)
    lower_priority()
    answers = _Answers()
    orders = map(json.loads, sys.stdin)
    store = next(orders)["open"]
    folding = Folding(
        lambda: open_online_store(store["url"], StoreAccess(**store["access"])),
        seconds=store["seconds"],
        bounds=HoldBounds(**store["bounds"]),
        note=answers.note,
        fail=answers.fail,
        report=lambda line: answers.send(line=line),
    )
    folding.start()
    for order in orders:
        if "follow" in order:
            generation = Generation.model_validate(order.pop("follow"))
            folding.follow(generation, **order)
        elif "hold" in order:
            folding.hold()
            answers.send(holds=True)
        elif "close" in order:
            folding.close()
            return
    os._exit(1)


if __name__ == "__main__":
    main()
