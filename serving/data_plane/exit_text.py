"""How a process ended, in words."""

from __future__ import annotations

import signal


def exit_text(code: int) -> str:
    """Returns "exit 3" or "signal SIGKILL"; a negative code is a signal's number."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
