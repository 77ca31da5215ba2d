"""The core's own C++ tests, ops/native/tests, that `make build-tests` built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpi_program import run_ranks
from native_build import built


@pytest.fixture(scope="module")
def program() -> Path:
    """Returns the executable."""
    return built("tests/hotrow_core_tests")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="fewer combinations on the emulated GPU"),
        pytest.param(["--whole"], id="every combination", marks=pytest.mark.slow),
    ],
)
def test_the_tests_of_the_core_pass(program: Path, options: list[str]) -> None:
    done = subprocess.run([str(program), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "Status: SUCCESS" in done.stdout


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        pytest.param(count, cases, marks=() if count == quick else pytest.mark.slow)
        for cases, quick in (
            ("mpi communicator*", 4),
            ("failing mpi*wait*", 2),
            ("failing mpi*before*", 2),
        )
        for count in (1, 2, 4)
    ],
    ids=lambda value: f"{value} ranks" if isinstance(value, int) else value,
)
def test_the_tests_of_mpi_pass_on_every_rank(
    program: Path, count: int, cases: str, tmp_path: Path
) -> None:
    # Where a rank leaves a sign for the others.
    env = {"LD_LIBRARY_PATH": str(Path(sys.prefix, "lib")), "TMPDIR": str(tmp_path)}
    result = run_ranks(count, [f"-tc={cases}"], executable=str(program), env=env)
    if cases.startswith("failing"):
        # How a process ends after that is MPI's affair.
        line = f"rank {count - 1}: the data is gone\n"
        assert all(line in output for output in result.outputs)
        assert not any("ERROR" in output for output in result.outputs)
    else:
        assert all("Status: SUCCESS" in output for output in result.outputs)
        assert result.exit_code == 0
