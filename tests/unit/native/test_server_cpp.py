"""The server's own C++ tests, serving/native/tests, that `make build-tests` built."""

from __future__ import annotations

import subprocess

from native_build import built


def test_the_tests_of_the_server_pass() -> None:
    program = built("server/tests/hotrow_server_tests")
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout
