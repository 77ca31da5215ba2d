"""The core's own C++ tests, ops/native/tests, as one test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpi_program import run_ranks

ROOT = Path(__file__).resolve().parents[3]
# What .ci/core-tests builds.
PROGRAM = ROOT / "build" / "native" / "tests" / "hotrow_core_tests"


def test_the_tests_of_the_core_pass() -> None:
    """Builds what changed since the last time, from the objects of `make setup`."""
    done = subprocess.run(
        [str(ROOT / ".ci" / "core-tests"), sys.executable, "plain"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout


@pytest.mark.parametrize("count", [1, 2, 4], ids=lambda n: f"{n} ranks")
@pytest.mark.parametrize("cases", ["mpi communicator*", "failing mpi*wait*", "failing mpi*before*"])
def test_the_tests_of_mpi_pass_on_every_rank(count: int, cases: str, tmp_path: Path) -> None:
    if not PROGRAM.exists():
        pytest.skip("the tests of the core are not built; the test before builds them")
    # Where a rank leaves a sign for the others.
    env = {"LD_LIBRARY_PATH": str(Path(sys.prefix, "lib")), "TMPDIR": str(tmp_path)}
    result = run_ranks(count, [f"-tc={cases}"], executable=str(PROGRAM), env=env)
    if cases.startswith("failing"):
        # How a process ends after that is MPI's affair.
        told = f"rank {count - 1}: the data is gone\n"
        assert all(told in output for output in result.outputs)
        assert not any("ERROR" in output for output in result.outputs)
    else:
        assert all("Status: SUCCESS" in output for output in result.outputs)
        assert result.exit_code == 0
