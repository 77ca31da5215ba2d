"""Which versions of a model are on disk: children of its base path whose names are numbers."""

from __future__ import annotations

import re
from pathlib import Path

from hotrow.errors import NotFoundError, UnimplementedError

_NUMBER = re.compile(r"[0-9]{1,19}")
_MAX_VERSION = 2**63 - 1


def resolve_base_path(given: str, model: str) -> Path:
    """Returns the absolute base path of a model.

    Raises:
        UnimplementedError: `given` is a URI.
        NotFoundError: there is no such directory.
    """
    if re.match(r"[a-z][a-z0-9+.-]*://", given):
        raise UnimplementedError(
            f"--model_base_path {given}: only directories of this machine are read, URIs are not "
            "built yet; copy the model here and name its directory"
        )
    path = Path(given).expanduser().resolve()
    if not path.is_dir():
        raise NotFoundError(
            f"Could not find base path {path} for servable {model}; --model_base_path names the "
            "directory that holds the numbered version directories"
        )
    return path


def newest_version(base_path: Path) -> dict[int, Path] | None:
    """Returns the newest version's number and directory, as TF Serving's `latest {1}` policy.

    A name counts when it is a decimal int64, leading zeros allowed; everything else is ignored,
    so a version may be written under another name and renamed when it is whole.

    Returns:
        One entry, none when there is no version, or None when the base path cannot be read.
    """
    try:
        numbers = {
            int(child.name): child
            for child in sorted(base_path.iterdir())
            if _NUMBER.fullmatch(child.name) and child.is_dir()
        }
    except OSError:
        return None
    legal = [number for number in numbers if number <= _MAX_VERSION]
    return {max(legal): numbers[max(legal)]} if legal else {}
