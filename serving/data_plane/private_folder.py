"""The folder of a supervisor's processes, in the directory of temporary files.

It holds sockets and files of cuts. A supervisor that is killed leaves it, and the next one that
starts removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "hotrow-"
SOCKETS = ("backend", "control", "public")


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Makes a folder that ends with the `with` block, or is removed by the next supervisor."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, contextlib.ExitStack() as stack:
        # Held until this process ends, however it ends; children do not inherit it.
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        yield Path(name)


def remove_left_folders() -> list[Path]:
    """Removes the folders of this user's supervisors that were killed; returns them."""
    found = Path(tempfile.gettempdir()).glob(f"{PREFIX}*")
    return [path for path in sorted(found) if _is_left(path) and _remove(path)]


def _is_left(path: Path) -> bool:
    """Returns whether a folder is a supervisor's, and no process of its server runs."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        sockets = [path / name for name in SOCKETS if (path / name).is_socket()]
        return bool(sockets) and not _is_held(path) and not any(map(_is_answered, sockets))
    except OSError:
        return False


def _is_held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_answered(path: Path) -> bool:
    """Returns whether a process listens: a supervisor of an older Hotrow holds no lock."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(0)
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            connection.connect(str(path))
            return True
    return False


def _remove(path: Path) -> bool:
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()
