"""Runs schedules of faults against a real cluster, exporter, servers and clients.

Every row and every weight of the model shows which step it is of, so each answer is checked as a
whole. An answer that is of two steps, of no step, or older than an earlier one of the same server
must say so (`x-hotrow-stale-rows`); refused requests are counted. After each schedule both servers
must show a new step within the node timeout and 10 s.

    PYTHONPATH=tests python -m faults [--schedules 200] [--seed 1]

A schedule depends on its seed alone; the seeds of bad ones are printed, for `--seed N --schedules
1`. The order in which processes answer does not repeat.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
from faults.schedule import schedule
from faults.world import World

PER_WORLD = 8  # a model has 256 steps at most


@click.command()
@click.option("--schedules", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of the first schedule.")
@click.option("--seconds", default=12.0, show_default=True, help="Of a schedule's faults.")
def main(schedules: int, seed: int, seconds: float) -> None:
    """Prints a line for each schedule, and ends with 1 if one was bad."""
    bad = []
    world = None
    for number in range(seed, seed + schedules):
        if world is None:
            folder = tempfile.TemporaryDirectory(prefix="faults-")
            world, left = World(Path(folder.name)), PER_WORLD
        faults = schedule(number, seconds)
        exports = world.trainer.exports
        failed, full, began = len(exports.failed), exports.full, time.monotonic()
        verdict = world.live_through(faults, seconds)
        took = "not" if verdict.converged is None else f"in {verdict.converged:.1f} s"
        print(
            f"seed {number}: {', '.join(f.kind for f in faults)}: step {world.trainer.step}, "
            f"{verdict.answers} answers, {verdict.failures} refused, {verdict.announced} stale, "
            f"{len(exports.failed) - failed} exports failed, {exports.full - full} full; "
            f"converged {took} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        if not verdict.is_good:
            bad.append(number)
            for fault in faults:
                print(f"    {fault}")
            for line in [*verdict.violations[:5], *exports.failed[failed:][-3:]]:
                print(f"    {line}", flush=True)
        left -= 1
        if left == 0 or not verdict.is_good:
            world.close()
            folder.cleanup()
            world = None
    if world is not None:
        world.close()
        folder.cleanup()
    print(f"{schedules - len(bad)} of {schedules} schedules were good; bad seeds: {bad or 'none'}")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
