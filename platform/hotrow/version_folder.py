"""The versions in a model's folder: those that servers see, and those that a rollback set aside.

A version is a folder whose name is a number. `<number>.rolled_back` is one that was set aside: no
server, TensorFlow Serving neither, takes it for a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SET_ASIDE = ".rolled_back"


def versions_in(folder: Path) -> Mapping[int, Path]:
    """Returns the versions that servers see, by their numbers in ascending order."""
    return _numbered(folder, "")


def set_aside_in(folder: Path) -> Mapping[int, Path]:
    """Returns the versions that a rollback set aside, by their numbers in ascending order."""
    return _numbered(folder, SET_ASIDE)


def next_version(folder: Path) -> int:
    """Returns the newest version plus 1, or 1 without one; numbers set aside are never reused."""
    return max([0, *versions_in(folder), *set_aside_in(folder)]) + 1


def show(path: Path) -> Path:
    """Makes a version that was set aside visible again; returns its path."""
    return path.rename(path.with_name(path.name.removesuffix(SET_ASIDE)))


def hide(path: Path) -> Path:
    """Sets a version aside; returns its new path."""
    return path.rename(path.with_name(path.name + SET_ASIDE))


def _numbered(folder: Path, suffix: str) -> Mapping[int, Path]:
    found = {}
    for path in folder.glob(f"*{suffix}"):
        number = path.name.removesuffix(suffix)
        if number.isdecimal() and path.is_dir():
            found[int(number)] = path
    return dict(sorted(found.items()))
