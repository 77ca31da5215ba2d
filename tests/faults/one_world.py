"""Schedules in one world, in a process with a clock of its own; `__main__.py` starts it.

    python -m faults.one_world FOLDER SECONDS SEED ...

Prints the result of each schedule as a line of JSON, and ends after the first bad one.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from faults.schedule import schedule
from faults.summary import Result
from faults.world import World


def _live_through(world: World, seed: int, seconds: float) -> Result:
    faults = schedule(seed, seconds)
    exports = world.trainer.exports
    ended, failed, full = exports.ended, len(exports.failed), exports.full
    began = time.monotonic()
    verdict = world.live_through(faults, seconds)
    return Result(
        seed=seed,
        faults=list(map(str, faults)),
        kinds=[fault.kind for fault in faults],
        answers=verdict.answers,
        refused=verdict.failures,
        stale=verdict.announced,
        exports=exports.ended - ended,
        failed_exports=len(exports.failed) - failed,
        full_exports=exports.full - full,
        cuts=verdict.cuts,
        wrong=verdict.violations,
        converged=verdict.converged,
        messages=[*exports.failed[failed:][-3:], *verdict.state],
        seconds=time.monotonic() - began,
    )


def main(folder: Path, seconds: float, seeds: list[int]) -> None:
    """Lives through the schedules of these seeds."""
    world = World(folder)
    try:
        for seed in seeds:
            result = _live_through(world, seed, seconds)
            print(result.as_json(), flush=True)
            if not result.is_good:
                return
    finally:
        world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), list(map(int, sys.argv[3:])))
