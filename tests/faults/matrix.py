"""Runs the tests of the fault matrix, as they are or with the defences switched off.

`fault_rows.py` has the table. A row's tests must pass; with `--mutate` they run once for each of
its mutations, on a copy of the package in which that defence is switched off, and must fail. Some
need what `make build-tests` builds.

    PYTHONPATH=platform:tests python -m faults.matrix [--row 4] [--mutate] [--list]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from children import start_child
from faults.fault_rows import ROWS, FaultRow
from faults.mutation import ROOT, mutated_package

_TESTS_FAILED = 1  # pytest's exit code for it
_LAST_CHARACTERS = 3000


@click.command()
@click.option("--row", "numbers", multiple=True, type=int, help="Only these rows.")
@click.option("--mutate", is_flag=True, help="Switch the defences off: tests must fail.")
@click.option("--list", "only_list", is_flag=True, help="Print the table and run nothing.")
def main(numbers: tuple[int, ...], mutate: bool, only_list: bool) -> None:
    """Prints a line for each row, and ends with 1 if one is not as it must be."""
    known = {row.number for row in ROWS}
    unknown = sorted(set(numbers) - known)
    if unknown:
        raise click.BadParameter(f"row {unknown[0]}: there are rows 1 to {max(known)}")
    rows = [row for row in ROWS if not numbers or row.number in numbers]
    bad = 0
    for row in rows:
        if only_list:
            outcome = "listed"
        elif mutate:
            outcome = _run_mutated(row)
        else:
            outcome = _run(row)
        bad += outcome.startswith("BAD")
        click.echo(f"{row.number:2} {row.fault}: {outcome}")
        if only_list:
            for line in (*row.tests, f"defence: {row.defence}"):
                click.echo(f"     {line}")
    raise SystemExit(1 if bad else 0)


def _run(row: FaultRow) -> str:
    code, printed = _pytest(row.tests, ROOT / "platform")
    return "passes" if code == 0 else f"BAD: it fails\n{printed}"


def _run_mutated(row: FaultRow) -> str:
    outcomes = []
    for mutations in [row.mutations] if row.together else [(one,) for one in row.mutations]:
        with tempfile.TemporaryDirectory(prefix="mutated-") as folder:
            try:
                package = mutated_package(Path(folder), mutations)
            except RuntimeError as err:
                return f"BAD: {err}"
            code, printed = _pytest(row.mutated_tests or row.tests, package)
        files = ", ".join(mutation.file for mutation in mutations)
        fails = code == _TESTS_FAILED
        problem = f"BAD: pytest ends with {code} without {files}\n{printed}"
        outcomes.append(f"fails without {files}" if fails else problem)
    bad = [outcome for outcome in outcomes if outcome.startswith("BAD")]
    return "; ".join(bad or outcomes)


def _pytest(tests: tuple[str, ...], package: Path) -> tuple[int, str]:
    """Runs tests on a package; returns the exit code and the end of what was printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider"]
    process = start_child(
        [*command, *(f"tests/{test}" for test in tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{package}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = process.communicate()
    return process.returncode, printed[-_LAST_CHARACTERS:]


if __name__ == "__main__":
    main()
