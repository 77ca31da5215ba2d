"""What `make build-tests` built for tests; no test compiles it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "native"


def path_of(name: str) -> Path:
    """Returns a file of the native build.

    Raises:
        FileNotFoundError: it is not built.
    """
    path = BUILD / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run make build-tests")
    return path


def built(name: str) -> Path:
    """Returns a file of the native build. Absent: skipped with that reason; in CI: a failure."""
    try:
        return path_of(name)
    except FileNotFoundError as err:
        reason = str(err)
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
