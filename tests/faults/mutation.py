"""Copies of the package in which a defence is switched off, for tests of tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = ROOT / "platform"
_NATIVE = "ops/native"
_LAST_CHARACTERS = 3000


@dataclass(frozen=True)
class Mutation:
    """A change of one file of the package, or of its native sources.

    Attributes:
        file: below the package `hotrow`, such as `trainer/online/run.py`.
        before: a text that the file has once.
        after: what replaces it.
    """

    file: str
    before: str
    after: str

    @property
    def is_native(self) -> bool:
        """Whether the package has to be built for it."""
        return Path(self.file).suffix in (".cc", ".h")

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
        mutations: at most one for each file. With a native one the folder gets a build of its own;
            what does not differ comes from ccache, where it is installed.

    Returns:
        The folder.

    Raises:
        RuntimeError: the native sources do not build with the mutations.
    """
    for mutation in mutations:
        parts = ("hotrow", *Path(mutation.file).parts)
        for depth in range(len(parts)):
            _link_all(_PACKAGE.joinpath(*parts[:depth]), folder.joinpath(*parts[:depth]))
        copy = folder.joinpath(*parts)
        copy.unlink()
        copy.write_text(mutation.applied(), encoding="utf-8")
    if any(mutation.is_native for mutation in mutations):
        _build(folder / "hotrow")
    return folder


def _build(package: Path) -> None:
    """Builds the native sources of a package of links, and replaces its links to what is built."""
    build = package / "build" / "native"  # where ccache finds it the same as in the checkout
    python = f"-DPython_EXECUTABLE={sys.executable}"
    for command in (
        ["cmake", "-S", package / _NATIVE, "-B", build, "-G", "Ninja", python],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-_LAST_CHARACTERS:]
            raise RuntimeError(f"{command[1]} of the mutated sources failed: {said}")
    for built in (build / "lib").iterdir():
        link = package / built.name
        if link.is_symlink():
            link.unlink()
            shutil.copy2(built, link)


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
