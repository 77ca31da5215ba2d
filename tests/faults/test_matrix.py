"""The fault matrix names tests that exist, and mutations that the product's files still take."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from faults.fault_rows import ROWS, FaultRow
from faults.mutation import ROOT, Mutation, mutated_package


def test_every_row_is_there_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 36))


def test_each_row_has_a_defence_and_a_mutation() -> None:
    assert all(row.tests and row.defence and row.mutations for row in ROWS)


def test_pytest_finds_the_tests_of_all_rows() -> None:
    names = {f"tests/{name}" for row in ROWS for name in (*row.tests, *row.mutated_tests)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
    done = subprocess.run(
        [*command, *sorted(names)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_the_text_of_a_mutation_occurs_once_in_its_file(row: FaultRow) -> None:
    for mutation in row.mutations:
        changed = mutation.applied()
        if mutation.file.endswith(".py"):
            ast.parse(changed)


def test_a_mutated_package_differs_in_its_files_alone(tmp_path: Path) -> None:
    mutation = Mutation(
        "trainer/online/publishing/gate.py",
        "_REFERENCE_SECONDS = 600.0",
        "_REFERENCE_SECONDS = 7.0",
    )
    package = mutated_package(tmp_path / "mutated", [mutation])
    program = """
import hotrow.trainer.online.publishing.gate as gate
import hotrow.trainer.online.publishing.view as view
import hotrow.native
print(gate._REFERENCE_SECONDS, gate.__file__, view.__file__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(package)},
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, *files = done.stdout.split()
    assert seconds == "7.0"
    assert all(file.startswith(str(package)) for file in files)
    assert "_REFERENCE_SECONDS = 600.0" in (ROOT / "platform/hotrow" / mutation.file).read_text()


def test_a_text_that_is_not_there_once_is_refused() -> None:
    for text in ("is nowhere", "def "):
        with pytest.raises(ValueError, match="a mutation replaces what is there once"):
            Mutation("trainer/online/publishing/gate.py", text, "").applied()
