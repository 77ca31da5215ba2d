"""The module hotrow_native_readers, which `make build-tests` builds for tests and benchmarks.

It has what the product's binding lacks: `MemoryReader`, `RedisReader`, `HotRows`, `ServingLookup`
and `decode_rows` (ops/native/tests/python). It takes the readers of `hotrow._native`, too.
"""

from __future__ import annotations

import functools
import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

from native_build import built

NAME = "hotrow_native_readers"
# Where native_build finds it.
FILE = f"tests/{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"


@functools.cache
def load(path: Path) -> ModuleType:
    """Returns the module of a file; the same one for every call."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def native_readers() -> ModuleType:
    """Returns the module. Absent: skipped or a failure, as in `built`."""
    return load(built(FILE))
