"""How ranks exchange data in the memory of their GPUs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DEVICE_COLLECTIVES = ("auto", "nccl", "host")
"""By NCCL, by way of RAM, or NCCL where it can be; the position is the native core's number."""


def nccl_library() -> str:
    """Returns the path of NCCL's library in the wheel nvidia-nccl-cu12; "" if it is absent."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    for folder in (found.submodule_search_locations or []) if found else []:
        library = Path(folder, "lib", "libnccl.so.2")
        if library.exists():
            return str(library)
    return ""
