"""Makes the faults of a schedule happen at their times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from faults.schedule import Fault


def run_schedule(
    schedule: Sequence[Fault],
    seconds: float,
    faults: Sequence[Any],
    report: Callable[[str], None],
) -> None:
    """Makes all faults happen, each in a thread, and lifts what is left of them.

    Args:
        schedule: the faults, in the order of their times.
        seconds: how long it lasts at least.
        faults: objects that have a method for each kind, and `lift`, in the order of lifting.
        report: called with a line when a fault begins or ends.
    """
    began = time.monotonic()

    def do(fault: Fault) -> None:
        name = fault.kind.replace(" ", "_")
        (one,) = (one for one in faults if hasattr(one, name))
        report(f"{fault.kind} begins")
        getattr(one, name)(fault.target, fault.lasts)
        report(f"{fault.kind} has ended")

    running = []
    for fault in schedule:
        time.sleep(max(0.0, began + fault.at - time.monotonic()))
        running.append(threading.Thread(target=do, args=(fault,), daemon=True))
        running[-1].start()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    for thread in running:
        thread.join()
    for one in faults:
        one.lift()
    report("all faults are lifted")
