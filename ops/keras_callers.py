"""Which Keras object calls: Keras passes none to a variable, so the frames of its callers show it.

Keras 3 offers no other way. An optimizer sets no attribute on a variable, and a layer learns
neither of `compile` nor of an optimizer that a loop calls. `keras.name_scope` keeps its callers in
a private list, and `LossScaleOptimizer` asks outside of its scope.

If Keras renames `self`, or calls from a module-level function, optimizers are no longer found.
`AnchorVariable.overwrite_with_gradient` then refuses to train, and `test_keras_callers.py` fails.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, TypeVar

Kind = TypeVar("Kind")

# From a method of the variable to the object that called it, with Keras' own calls and those that
# autograph adds in between.
_FRAMES = 8


def calling(kind: type[Kind]) -> Kind | None:
    """Returns the nearest object of a type among those whose methods led to this call, or None.

    Only the nearest callers are looked at: a caller far up, such as `fit`, is not meant.
    """
    for frame in _frames():
        found: Any = frame.f_locals.get("self")
        if isinstance(found, kind):
            return found
    return None


def called_by(package: str) -> bool:
    """Returns whether code of a package called the function that calls this one."""
    frame = sys._getframe(2)
    name: str = frame.f_globals.get("__name__", "")
    return name == package or name.startswith(f"{package}.")


def _frames() -> list[FrameType]:
    # Without this function, `calling` and the function that calls it.
    frame: FrameType | None = sys._getframe(3)
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _FRAMES:
        frames.append(frame)
        frame = frame.f_back
    return frames
