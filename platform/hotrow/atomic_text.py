"""Small text files that are replaced as a whole."""

from __future__ import annotations

import contextlib
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that readers see the text before or this one.

    A file with this text is left alone, so a full disk is no error then.

    Args:
        path: the file; its folder exists, and no other process writes it.
        text: written as UTF-8.

    Raises:
        OSError: the disk is full or refuses; it names the file, which does not change.
    """
    data = text.encode()
    with contextlib.suppress(OSError):
        if path.stat().st_size == len(data) and path.read_bytes() == data:
            return
    unfinished = path.with_name(f".{path.name}")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        # A refused write names no file.
        raise OSError(err.errno, err.strerror, str(path)) from err
