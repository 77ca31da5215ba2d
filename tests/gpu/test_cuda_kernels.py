"""The CUDA kernels, and tables over them, have the bits of the CPU's, on a real GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_native_tests_pass_on_this_gpu(gpu_build: Path) -> None:
    """Runs ops/native/tests/gpu."""
    tests = str(gpu_build / "tests" / "hotrow_gpu_tests")
    done = subprocess.run([tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout
