"""What `make build-tests` built for tests; no test compiles it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "native"


def built(name: str) -> Path:
    """Returns a file of the native build. Absent: skipped with that reason; in CI: a failure."""
    path = BUILD / name
    if not path.exists():
        reason = f"{path} is not built; run make build-tests"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path
