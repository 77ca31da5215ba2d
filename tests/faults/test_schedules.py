"""Five schedules of faults; `python -m faults` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.schedule import schedule
from faults.world import World

SECONDS = 12.0


@pytest.mark.slow
def test_faults_are_noticed_or_not_seen_and_all_is_well_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        for seed in (30, 32, 33, 36, 37):
            faults = schedule(seed, SECONDS)
            verdict = world.live_through(faults, SECONDS)
            assert verdict.violations == [], (seed, list(map(str, faults)))
            assert verdict.converged is not None, (seed, list(map(str, faults)))
    finally:
        world.close()
