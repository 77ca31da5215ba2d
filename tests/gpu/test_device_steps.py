"""Steps through the binding, with arrays of PyTorch or CuPy, equal those of tables in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("device_steps_program.py")


@pytest.mark.usefixtures("device_arrays")
def test_tables_on_a_gpu_equal_tables_in_memory(gpu_build: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=gpu_build / "lib",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert done.stdout.endswith("same\n")
