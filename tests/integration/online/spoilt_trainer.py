"""A trainer with a fault of its own: it kills itself at a point, or spoils what it publishes.

    python spoilt_trainer.py FAULT ARGUMENTS OF PLATFORM

The fault is the name of a point in `POINTS`, or one of these:

- `spoils:VALUE:ROWS`: as long as there is a file `spoilt` in the working directory, so many rows of
  each cut have that value.
- `hurries:SECONDS:MORE`: its last cut may take no longer than that, while a full export takes MORE
  seconds longer than it must.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTS = (
    "about to take a version",
    "having taken a version",
    "having taken a view",
    "about to write the journal",
    "having written the journal",
    "having staged rows",
    "about to commit",
    "having committed",
    "about to settle",
    "having settled",
    "folding",
    "having folded",
)


def dies(owner: Any, name: str, call: int, *, before: bool) -> None:
    """Has the process end itself by SIGKILL around a call of a method."""
    method = getattr(owner, name)
    calls = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and before:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = method(*arguments, **options)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, counted)


def dies_at(point: str) -> None:
    """Kills the process at the second cut; the first one comes at once and may have no rows."""
    from hotrow.store.cut_writing import CutStaging
    from hotrow.store.redis.row_store import RedisStore
    from hotrow.trainer.online.publishing.journal import Journal
    from hotrow.trainer.online.publishing.publisher import Publisher
    from hotrow.trainer.online.publishing.store_writer import StoreWriter
    from hotrow.trainer.online.publishing.view import CutView

    places: dict[str, Callable[[], None]] = {
        "about to take a version": lambda: dies(StoreWriter, "begin", 2, before=True),
        "having taken a version": lambda: dies(StoreWriter, "begin", 2, before=False),
        "having taken a view": lambda: dies(CutView, "__init__", 2, before=False),
        "about to write the journal": lambda: dies(Journal, "write", 2, before=True),
        "having written the journal": lambda: dies(Journal, "write", 2, before=False),
        "having staged rows": lambda: dies(CutStaging, "finish", 2, before=False),
        "about to commit": lambda: dies(StoreWriter, "commit", 2, before=True),
        "having committed": lambda: dies(StoreWriter, "commit", 2, before=False),
        "about to settle": lambda: dies(Publisher, "_settle", 2, before=True),
        "having settled": lambda: dies(Publisher, "_settle", 2, before=False),
        "folding": lambda: dies(RedisStore, "put", 1, before=False),
        "having folded": lambda: dies(RedisStore, "set_watermarks", 2, before=False),
    }
    assert tuple(places) == POINTS
    places[point]()


def spoils(value: float, rows: int) -> None:
    """Sets the first rows of each table in a cut to a value while there is a file `spoilt`."""
    from hotrow.line_layout import LineLayout

    weights = LineLayout.weights

    def spoilt(self: LineLayout, lines: Any) -> Any:
        read = weights(self, lines)
        if Path("spoilt").exists():
            read = read.copy()
            read[:rows] = value
        return read

    LineLayout.weights = spoilt  # type: ignore[method-assign]


def hurries(seconds: float, more: float) -> None:
    """Sets how long the last cut may take, and lets full exports take longer."""
    from hotrow.trainer.online import run
    from hotrow.trainer.online.publishing import publisher

    export_base = publisher.export_base

    def slow(*arguments: Any, **options: Any) -> None:
        time.sleep(more)
        export_base(*arguments, **options)

    publisher.export_base = slow  # type: ignore[attr-defined]
    assert run._LAST_CUT_SECONDS == 30.0
    run._LAST_CUT_SECONDS = seconds


def main() -> None:
    """Runs `platform`."""
    fault, *arguments = sys.argv[1:]
    if fault.startswith("spoils:"):
        _, value, rows = fault.split(":")
        spoils(float(value), int(rows))
    elif fault.startswith("hurries:"):
        _, seconds, more = fault.split(":")
        hurries(float(seconds), float(more))
    else:
        dies_at(fault)
    from hotrow.cli.main import main as platform

    raise SystemExit(platform(arguments))


if __name__ == "__main__":
    main()
