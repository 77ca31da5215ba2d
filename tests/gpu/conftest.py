"""The native build for the GPU of this machine, once a run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "ops" / "native"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-build", default=None, help="a build for this GPU, made by gpu-check")


def has_gpu() -> bool:
    """Whether nvidia-smi lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


@pytest.fixture(scope="session")
def gpu_build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds core, binding and C++ tests for this GPU alone; skips without one."""
    if not has_gpu():
        pytest.skip("no GPU here")
    given = request.config.getoption("--gpu-build", default=None)
    if given is not None:
        return Path(given).resolve()
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc here")
    build = tmp_path_factory.mktemp("gpu")
    configure = [
        "cmake", "-S", str(NATIVE), "-B", str(build), "-G", "Ninja", "-DHOTROW_TF=OFF",
        "-DHOTROW_CUDA=ON", "-DHOTROW_TESTS=ON", "-DCMAKE_CUDA_ARCHITECTURES=native",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]  # fmt: skip
    # cmake and ninja may be wheels beside the interpreter.
    beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (
        configure,
        ["cmake", "--build", str(build), "--target", "all", "hotrow_gpu_tests"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=beside, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return build


@pytest.fixture(scope="session")
def device_arrays() -> None:
    """Skips where nothing makes arrays on a GPU."""
    if all(importlib.util.find_spec(name) is None for name in ("torch", "cupy")):
        pytest.skip("neither PyTorch nor CuPy here")
