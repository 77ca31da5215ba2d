"""Directories that appear whole or not at all, with checksums of everything in them.

A sealed directory is written under another name, every file is flushed to the disk,
`manifest.json` with a SHA-256 of each file is written last, and one rename makes it visible. A
crash at any moment leaves either the complete directory or a leftover that `remove_leftovers`
takes away.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hotrow.errors import AlreadyExistsError, DataLossError, HotrowError

MANIFEST = "manifest.json"
_LEFTOVER_PREFIX = ".unfinished-"
_CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def sealing(final: Path, facts: Mapping[str, Any]) -> Iterator[Path]:
    """Yields a new directory to fill; on leaving it is sealed and renamed to `final`.

    Args:
        final: the directory to make; its parent must exist.
        facts: JSON values for the manifest, beside `files`; may be completed inside the block.

    Raises:
        AlreadyExistsError: `final` exists.
        HotrowError: the disk is full or refuses; nothing is left behind.
    """
    if final.exists():
        raise AlreadyExistsError(f"{final} exists already; remove it or choose another name")
    unfinished = final.with_name(f"{_LEFTOVER_PREFIX}{final.name}-{os.getpid()}")
    try:
        unfinished.mkdir()
        yield unfinished
        _seal(unfinished, facts)
        unfinished.rename(final)
        _flush(final.parent)
    except OSError as err:
        shutil.rmtree(unfinished, ignore_errors=True)
        if final.exists() and err.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise AlreadyExistsError(f"{final} exists already; another process wrote it") from err
        raise HotrowError(f"cannot write {final}: {err.strerror or err}") from err
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def read_sealed(
    directory: Path, digest_bytes: int | None = None, without: str | None = None
) -> dict[str, Any]:
    """Returns the manifest of a sealed directory after checking every file against it.

    Args:
        directory: a sealed directory.
        digest_bytes: larger files are checked by their size alone; None: every byte is read.
        without: a folder in it that is not needed and not checked.

    Raises:
        DataLossError: the manifest or a file is missing, damaged or was changed; the message
            names it.
    """
    manifest = directory / MANIFEST
    try:
        content: dict[str, Any] = json.loads(manifest.read_bytes())
        seal = content.pop("seal")
        files = dict(content["files"])
    except FileNotFoundError as err:
        raise DataLossError(f"{manifest} is missing") from err
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise DataLossError(f"{manifest} is damaged") from err
    if seal != _digest_of(content):
        raise DataLossError(f"{manifest} is damaged: its checksum differs")
    for name, expected in files.items():
        path = directory / name
        if without is not None and name.startswith(f"{without}/"):
            continue
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise DataLossError(
                    f"{path} is damaged: {size} bytes, {expected['bytes']} in {MANIFEST}"
                )
            if digest_bytes is not None and size > digest_bytes:
                continue
            found = _digest_of_file(path)
        except OSError as err:
            raise DataLossError(f"{path} cannot be read: {err.strerror}") from err
        if found != expected["sha256"]:
            raise DataLossError(f"{path} is damaged: its checksum differs from {MANIFEST}")
    return content


def remove_leftovers(parent: Path) -> None:
    """Removes what an interrupted `sealing` left in `parent`; call it while no one else writes."""
    for path in parent.glob(f"{_LEFTOVER_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _seal(directory: Path, facts: Mapping[str, Any]) -> None:
    files = {}
    for path in sorted(directory.rglob("*")):
        _flush(path)
        if path.is_file():
            name = path.relative_to(directory).as_posix()
            files[name] = {"sha256": _digest_of_file(path), "bytes": path.stat().st_size}
    content = {**facts, "files": files}
    manifest = directory / MANIFEST
    manifest.write_text(json.dumps({**content, "seal": _digest_of(content)}, indent=1) + "\n")
    _flush(manifest)
    _flush(directory)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
