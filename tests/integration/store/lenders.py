"""Processes that hold the export lock of a model, to lend it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

_HOLD = """
import sys
from hotrow.store import open_store
from hotrow.store.leases import exporter_of, lock_exports

store = open_store(sys.argv[1])
with lock_exports(store.records, sys.argv[2], trainer=sys.argv[3], lender=sys.argv[4]):
    print(exporter_of(store.records, sys.argv[2]).holder, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(
    url: str, model: str, trainer: str, lender: str = ""
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the lock until its input ends; yields it and its name in the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, url, model, trainer, lender],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.communicate()


def killed_holder(url: str, model: str, trainer: str) -> str:
    """Returns the name in the lock of a process that was killed while it held it."""
    with holder(url, model, trainer) as (process, name):
        process.kill()
    return name
