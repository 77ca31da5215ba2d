"""Directories that appear as a whole, with checksums of all files in them.

A sealed directory is written under a temporary name. Every file is flushed to the disk, and
`manifest.json` with a SHA-256 of each file is written last. Then one rename makes the directory
visible. A crash at any moment leaves either the complete directory or a leftover that
`remove_leftovers` removes. The manifest's own checksum, its seal, covers everything in the
directory.
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

from hotrow.errors import (
    AlreadyExistsError,
    DataLossError,
    HotrowError,
    ResourceExhaustedError,
    is_full_disk,
)
from hotrow.hashed_file import FileFacts

MANIFEST = "manifest.json"
_LEFTOVER_PREFIX = ".unfinished-"
_CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def sealing(
    final: Path,
    facts: Mapping[str, Any],
    hashed: Mapping[str, FileFacts] | None = None,
    replace: bool = False,
) -> Iterator[Path]:
    """Yields a new directory to fill; on leaving it is sealed and renamed to `final`.

    Args:
        final: the directory to make; its parent must exist.
        facts: JSON values for the manifest, besides `files`; the block may add to them.
        hashed: files that are written as `HashedFile`, by name in the directory; they are not read
            again. The block may add to them.
        replace: whether to replace an existing `final` at the end.

    Raises:
        AlreadyExistsError: `final` exists and `replace` is false.
        ResourceExhaustedError: the disk is full; no file is left.
        HotrowError: the disk refuses; no file is left.
    """
    if final.exists() and not replace:
        raise AlreadyExistsError(f"{final} exists already; remove it or choose another name")
    unfinished = final.with_name(f"{_LEFTOVER_PREFIX}{final.name}-{os.getpid()}")
    try:
        unfinished.mkdir()
        yield unfinished
        _seal(unfinished, facts, hashed or {})
        if replace and final.exists():
            discard(final)
        unfinished.rename(final)
        flush(final.parent)
    except OSError as err:
        shutil.rmtree(unfinished, ignore_errors=True)
        if final.exists() and err.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise AlreadyExistsError(f"{final} exists already; another process wrote it") from err
        kind = ResourceExhaustedError if is_full_disk(err) else HotrowError
        raise kind(f"cannot write {final}: {err.strerror or err}") from err
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def read_sealed(
    directory: Path, digest_bytes: int | None = None, without: str | None = None
) -> dict[str, Any]:
    """Returns the manifest of a sealed directory after checking every file against it.

    Args:
        directory: a sealed directory.
        digest_bytes: larger files are checked by size only; None: every byte is read.
        without: a folder in it that is not needed and not checked.

    Raises:
        DataLossError: the manifest or a file is missing, damaged or was changed; the message
            names it.
    """
    content = read_manifest(directory)
    check_files(directory, content["files"], digest_bytes, without)
    return content


def read_manifest(directory: Path) -> dict[str, Any]:
    """Returns the manifest of a sealed directory without a check of its files.

    Raises:
        DataLossError: it is missing, damaged or was changed.
    """
    manifest = directory / MANIFEST
    try:
        content: dict[str, Any] = json.loads(manifest.read_bytes())
        seal = content.pop("seal")
        files = content["files"]
        if not all(isinstance(file["bytes"], int) and file["sha256"] for file in files.values()):
            raise ValueError("files")
    except FileNotFoundError as err:
        raise DataLossError(f"{manifest} is missing") from err
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise DataLossError(f"{manifest} is damaged") from err
    if seal != seal_of(content):
        raise DataLossError(f"{manifest} is damaged: its checksum differs")
    return content


def check_files(
    directory: Path,
    files: Mapping[str, FileFacts],
    digest_bytes: int | None = None,
    without: str | None = None,
) -> None:
    """Checks files of a sealed directory against the entries of its manifest.

    Args:
        directory: a sealed directory.
        files: `files` of its manifest, or some of them.
        digest_bytes: as in `read_sealed`.
        without: as in `read_sealed`.

    Raises:
        DataLossError: a file is missing, damaged or was changed; the message names it.
    """
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
        except ValueError as err:  # a name that no file has
            raise DataLossError(f"{directory / MANIFEST} is damaged: {err}") from err
        except OSError as err:
            raise DataLossError(f"{path} cannot be read: {err.strerror}") from err
        if found != expected["sha256"]:
            raise DataLossError(f"{path} is damaged: its checksum differs from {MANIFEST}")


def remove_leftovers(parent: Path) -> None:
    """Removes leftovers of an interrupted `sealing` in `parent`; no writer may be active there."""
    for path in parent.glob(f"{_LEFTOVER_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def discard(path: Path) -> None:
    """Removes a sealed directory; a crash meanwhile leaves it whole or as a leftover."""
    doomed = path.with_name(f"{_LEFTOVER_PREFIX}discarded-{path.name}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def seal_of(content: Mapping[str, Any]) -> str:
    """Returns the checksum of a manifest's content, which its `seal` must equal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _seal(directory: Path, facts: Mapping[str, Any], hashed: Mapping[str, FileFacts]) -> None:
    files: dict[str, FileFacts] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name in hashed:
            files[name] = hashed[name]
            continue
        flush(path)
        if path.is_file():
            files[name] = {"sha256": _digest_of_file(path), "bytes": path.stat().st_size}
    content = {**facts, "files": files}
    manifest = directory / MANIFEST
    # Without a final line end: cut by a single byte, the text is not valid JSON any more.
    manifest.write_text(json.dumps({**content, "seal": seal_of(content)}, indent=1))
    flush(manifest)
    flush(directory)


def flush(path: Path) -> None:
    """Returns once a file or directory is on the disk.

    Raises:
        OSError: the disk refuses.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
