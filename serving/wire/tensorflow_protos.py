"""TensorFlow's protos without TensorFlow, whose import takes 2 s of CPU and 300 MB.

Modules of protos, those of TF Serving's API too, are imported as `tensorflow.core...`, for which
Python first runs `tensorflow/__init__.py`. A process that needs only protos gets a substitute
package `tensorflow` from here that contains nothing else.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from hotrow.errors import FailedPreconditionError

# Folders of TensorFlow with protos; the packages in them are empty.
_FOLDERS = ("core", "compiler", "tsl")


def tensorflow_folder() -> Path:
    """Returns where TensorFlow is installed; does not import it.

    Raises:
        FailedPreconditionError: it is not installed.
    """
    known = sys.modules.get("tensorflow")
    spec = known.__spec__ if known is not None else importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise FailedPreconditionError("TensorFlow is not installed; pip install tensorflow")
    return Path(spec.origin).parent


def tensorflow_version() -> str:
    """Returns the version of the installed TensorFlow."""
    return importlib.metadata.version("tensorflow")


def import_no_tensorflow() -> None:
    """Makes this process import only TensorFlow's protos; does nothing if TensorFlow is imported.

    The rest of TensorFlow cannot be imported afterwards. So call this only in a process that Hotrow
    owns from its start to its end.

    Raises:
        FailedPreconditionError: TensorFlow is not installed.
    """
    if "tensorflow" in sys.modules:
        return
    folder = tensorflow_folder()
    sys.modules["tensorflow"] = top = _ProtosOnly("tensorflow", folder)
    for name in _FOLDERS:
        package = _ProtosOnly(f"tensorflow.{name}", folder / name)
        package.__path__ = [str(folder / name)]
        sys.modules[package.__name__] = package
        setattr(top, name, package)


class _ProtosOnly(ModuleType):
    """A package whose errors explain why anything else is missing."""

    __path__: list[str]

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__file__ = __file__  # what Python names when `from tensorflow import x` fails
        self.__spec__ = ModuleSpec(name, None, origin=str(folder / "__init__.py"), is_package=True)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self.__name__}.{name} is not here: this process has TensorFlow's protos alone "
            f"({__file__})"
        )
