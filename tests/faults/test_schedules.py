"""Short schedules that have every kind of fault; `python -m faults` runs more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from children import start_child
from faults.schedule import DECK, KINDS, TRAINER_DECK, TRAINER_KINDS, schedule_of

SEED = 0
SECONDS = 4.0
WORLDS = {"exporter": (DECK, KINDS), "trainer": (TRAINER_DECK, TRAINER_KINDS)}


@pytest.mark.parametrize("world", WORLDS)
def test_a_deck_has_all_faults_and_a_schedule_is_of_its_seed_alone(world: str) -> None:
    deck, all_kinds = WORLDS[world]
    for first in (0, deck, 100 * deck):
        schedules = [schedule_of(world, first + n, SECONDS) for n in range(deck)]
        assert {fault.kind for one in schedules for fault in one} == set(all_kinds)
    seventh = schedule_of(world, 7, SECONDS)
    assert seventh == schedule_of(world, 7, SECONDS) != schedule_of(world, 8, SECONDS)


def summary_of(file: Path, root: Path, count: int, flags: Sequence[str] = ()) -> dict[str, Any]:
    """Returns what `python -m faults` says of schedules, none of which may be bad."""
    schedules = ["--schedules", count, "--seed", SEED, "--seconds", SECONDS, *flags]
    driver = start_child(
        [sys.executable, "-m", "faults", *map(str, schedules), "--json", file],
        env={**os.environ, "PYTHONPATH": f"{root / 'platform'}:{root / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = driver.communicate()
    assert driver.returncode == 0, printed
    found: dict[str, Any] = json.loads(file.read_text())
    assert (found["wrong"], found["unconverged"], found["schedules"]) == (0, 0, count), printed
    assert found["answers"] > 100, printed
    assert found["cuts"] > count, printed
    return found


def test_faults_are_announced_or_not_seen_and_all_is_well_again(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    found = summary_of(tmp_path / "summary.json", pytestconfig.rootpath, DECK)
    assert set(found["faults"]) == set(KINDS)
    assert found["exports"] > DECK


def test_a_trainer_counts_each_event_once_and_servers_show_it_whatever_fails(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    file = tmp_path / "summary.json"
    found = summary_of(file, pytestconfig.rootpath, TRAINER_DECK, ["--trainer"])
    assert set(found["faults"]) == set(TRAINER_KINDS)
    assert found["starts"] > 0
    assert found["refused_trainers"] + found["takeovers"] > 0
