"""The server's own C++ tests, serving/native/tests, as one test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_tests_of_the_server_pass() -> None:
    """Builds what changed since the last time, from the objects of `make setup`."""
    done = subprocess.run(
        [str(ROOT / ".ci" / "core-tests"), sys.executable, "server"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout
