"""Names of processes that never come again, and whether such a process has ended."""

from __future__ import annotations

import os
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def identity_of(pid: int) -> str:
    """Returns `boot/namespace/pid/start` of a process; "" if the kernel does not say.

    The boot of the machine and the namespace of process ids say where the pid counts; the time of
    its start, in ticks since the boot, distinguishes it from a later process with the same pid.
    """
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        namespace = _NAMESPACE.readlink().name
        # The name of the program, in parentheses, may have spaces. The start is field 22.
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
    return f"{boot}/{namespace}/{pid}/{start}"


def has_ended(identity: str) -> bool:
    """Returns whether a process has surely ended; False if this process cannot know.

    It knows of processes in its own namespace only, which is not that of another machine or
    container.
    """
    here, _, _ = identity_of(os.getpid()).rpartition("/")
    where, _, pid = identity.rpartition("/")[0].rpartition("/")
    if not here or where != here.rpartition("/")[0] or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it belongs to another user
    now = identity_of(int(pid))
    return now not in ("", identity)
