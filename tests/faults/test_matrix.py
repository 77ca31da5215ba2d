"""The fault matrix names tests that exist, and mutations that the product's files still take."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from faults.fault_rows import ROWS, FaultRow
from faults.mutation import ROOT, Mutation, mutated_package


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_is_there_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 36))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_a_row_names_tests_that_exist(row: FaultRow) -> None:
    assert row.tests
    assert row.defence
    assert row.mutations
    for name in (*row.tests, *row.mutated_tests):
        file, _, function = name.partition("::")
        assert (ROOT / "tests" / file).exists(), name
        if function:
            assert function.partition("[")[0] in functions_in(ROOT / "tests" / file), name


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
