"""Five short schedules that have every kind of fault; `python -m faults` runs more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from children import start_child
from faults.schedule import DECK, KINDS, schedule

SEED = 0
SECONDS = 4.0


def test_five_schedules_have_all_faults_and_a_schedule_is_of_its_seed_alone() -> None:
    for first in (0, DECK, 100 * DECK):
        kinds = {fault.kind for n in range(DECK) for fault in schedule(first + n, SECONDS)}
        assert kinds == set(KINDS)
    assert schedule(7, SECONDS) == schedule(7, SECONDS) != schedule(8, SECONDS)


def test_faults_are_announced_or_not_seen_and_all_is_well_again(
    tmp_path: Path, pytestconfig
) -> None:
    file = tmp_path / "summary.json"
    schedules = ["--schedules", DECK, "--seed", SEED, "--seconds", SECONDS]
    root = pytestconfig.rootpath
    driver = start_child(
        [sys.executable, "-m", "faults", *map(str, schedules), "--json", file],
        env={**os.environ, "PYTHONPATH": f"{root / 'platform'}:{root / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = driver.communicate()
    assert driver.returncode == 0, printed
    found = json.loads(file.read_text())
    assert (found["wrong"], found["unconverged"], found["schedules"]) == (0, 0, DECK), printed
    assert set(found["faults"]) == set(KINDS)
    assert found["answers"] > 100, printed
    assert found["exports"] > DECK, printed
    assert found["cuts"] > DECK, printed
