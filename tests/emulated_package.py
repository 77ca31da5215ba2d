"""The package with its core and its TensorFlow ops linked with the emulator of CUDA, for tests.

There is no GPU here: the emulator of ops/native/tests/simt stands in place of CUDA. No Python of
the package differs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from native_build import built

import hotrow
from hotrow import _native


def lay_out_emulated(folder: Path) -> Path:
    """Returns `folder`, a PYTHONPATH with the package, from what `make build-tests` built."""
    emulated = built("emulated/libhotrow_tf.so").parent
    package = folder / "hotrow"
    package.mkdir()
    for entry in Path(hotrow.__file__).parent.iterdir():
        if entry.suffix != ".so":
            (package / entry.name).symlink_to(entry)
    # Copies: a library looks for the core beside itself, and so does the executable.
    binding = Path(_native.__file__)
    for library in (binding, binding.parent / "hotrow-server", *emulated.glob("*.so")):
        (package / library.name).unlink(missing_ok=True)
        shutil.copy(library, package / library.name)
    return folder
