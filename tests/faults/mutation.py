"""Copies of the package in which a defence is switched off, for tests of tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = ROOT / "platform"


@dataclass(frozen=True)
class Mutation:
    """A change of one file of the package.

    Attributes:
        file: below the package `hotrow`, such as `trainer/online/run.py`.
        before: a text that the file has once.
        after: what replaces it.
    """

    file: str
    before: str
    after: str

    def applied(self) -> str:
        """Returns the file's text with the change.

        Raises:
            ValueError: the file does not have the text, or more than once.
        """
        text = (_PACKAGE / "hotrow" / self.file).read_text(encoding="utf-8")
        count = text.count(self.before)
        if count != 1:
            raise ValueError(
                f"hotrow/{self.file} has {self.before!r} {count} times, and a mutation replaces "
                "what is there once: adapt the mutation to the file"
            )
        return text.replace(self.before, self.after)


def mutated_package(folder: Path, mutations: Sequence[Mutation]) -> Path:
    """Makes a package that differs in these files; the others are links to the real ones.

    Args:
        folder: new; on PYTHONPATH it takes the place of `platform`.
        mutations: at most one for each file.

    Returns:
        The folder.
    """
    for mutation in mutations:
        parts = ("hotrow", *Path(mutation.file).parts)
        for depth in range(len(parts)):
            _link_all(_PACKAGE.joinpath(*parts[:depth]), folder.joinpath(*parts[:depth]))
        copy = folder.joinpath(*parts)
        copy.unlink()
        copy.write_text(mutation.applied(), encoding="utf-8")
    return folder


def _link_all(real: Path, copy: Path) -> None:
    """Makes a folder of links, unless it is there; compiled files are of the real sources."""
    if copy.is_symlink():
        copy.unlink()
    elif copy.is_dir():
        return
    copy.mkdir(parents=True)
    for entry in os.scandir(real):
        if entry.name != "__pycache__":
            (copy / entry.name).symlink_to(Path(entry.path).resolve())
