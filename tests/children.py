"""Starts processes that end with this one, however it ends."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# The kernel ends a process with the *thread* that started it, so that must live to the end.
_starter = ThreadPoolExecutor(1, "starter")
_lock = threading.Lock()


def start_child(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process with the options of `Popen`.

    The kernel kills it when this process ends, also by SIGKILL.
    """
    whole = ["setpriv", "--pdeathsig", "KILL", *command]
    with _lock:
        return _starter.submit(subprocess.Popen, whole, **options).result()
