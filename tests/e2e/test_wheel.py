"""A wheel from a clean checkout has all that a server needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest
from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]


# It builds the native part from nothing.
@pytest.mark.slow
def test_a_wheel_of_a_clean_checkout_serves(tmp_path: Path, shared: Path) -> None:
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    flags = ["--no-deps", "--no-build-isolation", "-w", tmp_path]
    subprocess.run([*pip, "wheel", *flags, checkout], env=tools, check=True)
    (wheel,) = tmp_path.glob("hotrow-*-linux_x86_64.whl")
    names = zipfile.ZipFile(wheel).namelist()
    built = [name for name in names if name.endswith(".so") or "." not in Path(name).name]
    assert {Path(name).name.split(".")[0] for name in built if name.startswith("hotrow/")} == {
        *("_native", "hotrow-server", "libhotrow_core", "libhotrow_tf")
    }
    assert "hotrow/store/redis/functions.lua" in names
    shutil.rmtree(checkout)
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    # Before this checkout's own package.
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = [sys.executable, "-c", "import hotrow; print(hotrow.__file__)"]
    found = subprocess.run(where, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    assert found.stdout.decode().strip() == str(site / "hotrow" / "__init__.py")
    model = shared / "data" / "tfserving_testdata" / "saved_model_half_plus_two_cpu"
    rest_port = free_port()
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "hotrow.cli.main", "serve", f"--model_base_path={model}"),
            *("--model_name=half", f"--port={free_port()}", f"--rest_api_port={rest_port}"),
        ],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("Serving half version 123")
        body = b'{"instances": [1.0]}'
        url = f"http://127.0.0.1:{rest_port}/v1/models/half:predict"
        with urllib.request.urlopen(url, body, timeout=60) as reply:
            assert b"2.5" in reply.read()
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.communicate()
