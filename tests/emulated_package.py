"""The package with its core and its TensorFlow ops linked with the emulator of CUDA, for tests.

There is no GPU here: the emulator of ops/native/tests/simt stands in place of CUDA. No Python of
the package differs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import hotrow
from hotrow import _native

ROOT = Path(__file__).resolve().parents[1]


def lay_out_emulated(folder: Path) -> Path:
    """Returns `folder`, a PYTHONPATH with the package, built from setup's objects."""
    built = subprocess.run(
        [str(ROOT / ".ci" / "emulated-gpu"), sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-8000:] + built.stderr[-4000:]
    package = folder / "hotrow"
    package.mkdir()
    for entry in Path(hotrow.__file__).parent.iterdir():
        if entry.suffix != ".so":
            (package / entry.name).symlink_to(entry)
    # Copies: a library looks for the core beside itself.
    binding = Path(_native.__file__)
    for library in (binding, *(ROOT / "build" / "native" / "emulated").glob("*.so")):
        shutil.copy(library, package / library.name)
    return folder
