"""The CUDA kernels have the bits of the CPU's, on a real GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "ops" / "native"


def has_gpu() -> bool:
    """Whether nvidia-smi lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.skipif(not has_gpu(), reason="no GPU here")
def test_the_kernels_tests_pass_on_this_gpu(tmp_path: Path) -> None:
    """Builds ops/native/tests/gpu for this GPU alone."""
    # cmake and ninja may be wheels beside the interpreter.
    beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    commands = (
        [
            "cmake", "-S", str(NATIVE), "-B", str(tmp_path), "-G", "Ninja", "-DHOTROW_TF=OFF",
            "-DHOTROW_CUDA=ON", "-DHOTROW_TESTS=ON", "-DCMAKE_CUDA_ARCHITECTURES=native",
            f"-DPython_EXECUTABLE={sys.executable}",
        ],
        ["cmake", "--build", str(tmp_path), "--target", "hotrow_gpu_tests"],
        [str(tmp_path / "tests" / "hotrow_gpu_tests")],
    )  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, env=beside, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout
