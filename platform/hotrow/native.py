"""The native binding: importing this module checks `hotrow._native` and makes it usable.

The binding is the lowest layer and imports none of our modules. The factory that this module sets
turns its errors into ours.
"""

from __future__ import annotations

import importlib.metadata

from hotrow import errors

try:
    from hotrow import _native
except ImportError as err:
    raise ImportError(
        "hotrow._native is not built for this Python; run `make setup` (or `pip install .`)"
    ) from err


def check_tensorflow_version(installed: str | None) -> None:
    """Checks that the installed TensorFlow is the one that the native part was built for.

    Args:
        installed: version of the installed TensorFlow; None when there is none.

    Raises:
        ImportError: the versions differ.
    """
    built_for = _native.built_for_tensorflow
    if built_for and installed is not None and installed != built_for:
        raise ImportError(
            f"hotrow was built for TensorFlow {built_for} and finds {installed}; "
            f"install tensorflow=={built_for}, or build hotrow again (`make setup`)"
        )


def _installed_tensorflow() -> str | None:
    try:
        return importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        return None


check_tensorflow_version(_installed_tensorflow())
_native.set_error_factory(errors.from_status)
