"""What the tests of `hotrow.trainer.data` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def rejected() -> Path:
    """The folder of files that must be rejected."""
    return Path(__file__).parent / "rejected"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes text or bytes to a new file and returns its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file
