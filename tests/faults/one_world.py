"""Schedules in one world, in a process with a clock of its own; `__main__.py` starts it.

    python -m faults.one_world KIND FOLDER SECONDS SEED ...

The kind is `exporter` or `trainer`. Prints the result of each schedule as a line of JSON, and ends
after the first bad one. The last one's also says what is wrong at the end of the world.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from faults.schedule import Fault, schedule_of
from faults.summary import Result


def _make_world(kind: str, folder: Path, seed: int) -> Any:
    if kind == "trainer":
        from faults.trainer_world import TrainerWorld

        return TrainerWorld(folder, seed)
    from faults.world import World

    return World(folder)


def _live_through(world: Any, seed: int, faults: list[Fault], seconds: float) -> Result:
    began = time.monotonic()
    verdict = world.live_through(faults, seconds)
    return Result(
        seed=seed,
        faults=list(map(str, faults)),
        kinds=[fault.kind for fault in faults],
        answers=verdict.answers,
        refused=verdict.failures,
        stale=verdict.announced,
        rewinds=verdict.rewinds,
        cuts=verdict.cuts,
        wrong=verdict.violations,
        came_up=verdict.came_up,
        converged=verdict.converged,
        stored=verdict.stored,
        messages=verdict.state,
        seconds=time.monotonic() - began,
        **verdict.counts,
    )


def main(kind: str, folder: Path, seconds: float, seeds: list[int]) -> None:
    """Lives through the schedules of these seeds."""
    world = _make_world(kind, folder, seeds[0])
    try:
        for seed in seeds:
            result = _live_through(world, seed, schedule_of(kind, seed, seconds), seconds)
            if result.is_good and seed == seeds[-1]:
                result = replace(result, wrong=world.end())
            print(result.as_json(), flush=True)
            if not result.is_good:
                return
    finally:
        world.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), list(map(int, sys.argv[4:])))
