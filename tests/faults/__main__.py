"""Runs schedules of faults against a real cluster, exporter, servers and clients.

Every row and every weight of the model shows which step it is of, so each answer is checked as a
whole. An answer that is of two steps, of no step, or older than an earlier one of the same server
must say so (`x-hotrow-stale-rows`); refused requests are counted. After each schedule both servers
must show a new step within the node timeout and 10 s.

With `--trainer`, `platform train --online` is in the place of the exporter, and further faults hit
it and the stream that it reads (`trainer_world.py`). Each answer must have exactly the rows and
weights after one batch of the stream, and in the quiet after a schedule, trainer, store and servers
must have those after the last one. The summary counts the schedules in which that took at most 5 s
from when the last process answered again: after a kill, a trainer must first load its libraries. An
answer may be older than the one before if a trainer was started in between, which goes on from its
checkpoint. At the end of a world the checkpoint must count each event once.

    PYTHONPATH=platform:tests python -m faults [--trainer] [--schedules 200] [--seed 0] [--jobs 3]

A schedule depends on its seed alone; the seeds of bad ones are printed, for `--seed N --schedules
1`. The order in which processes answer does not repeat.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from children import start_child
from faults import clocks
from faults.schedule import schedule_of
from faults.summary import Result, summary

PER_WORLD = 10  # a model has 256 steps at most


@click.command()
@click.option("--trainer", is_flag=True, help="A trainer that learns online is in the world.")
@click.option("--schedules", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the first schedule.")
@click.option("--seconds", default=8.0, show_default=True, help="Of a schedule's faults.")
@click.option("--jobs", default=1, show_default=True, help="Schedules at the same time.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="For all results.")
def main(
    trainer: bool, schedules: int, seed: int, seconds: float, jobs: int, file: Path | None
) -> None:
    """Prints a line for each schedule and a summary, and ends with 1 if one was bad."""
    kind = "trainer" if trainer else "exporter"
    seeds = list(range(seed, seed + schedules))
    parts = [seeds[first : first + PER_WORLD] for first in range(0, schedules, PER_WORLD)]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        library = clocks.build(Path(folder))
        results: list[Result] = []
        writing = threading.Lock()

        def run(part: list[int]) -> None:
            for result in _run(kind, part, seconds, library):
                with writing:
                    results.append(result)
                    print(result, flush=True)
                    _write(file, results)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run, parts))
    found = summary(results)
    for name, value in found.items():
        print(f"{name}: {value}")
    raise SystemExit(1 if found["bad_seeds"] else 0)


def _write(file: Path | None, results: Sequence[Result]) -> None:
    """Writes all results so far: a long run may be cut."""
    if file is None:
        return
    each = [json.loads(result.as_json()) for result in results]
    text = json.dumps({**summary(results), "results": each}, indent=1)
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.rename(file)


def _run(kind: str, seeds: list[int], seconds: float, library: Path) -> Iterator[Result]:
    """Yields the results of these seeds; after a bad one the others have a new world."""
    while seeds:
        with tempfile.TemporaryDirectory(prefix="world-", ignore_cleanup_errors=True) as name:
            clock = clocks.Clock(Path(name) / "exporter.clock", library)
            log = Path(name) / "errors"
            program = [sys.executable, "-m", "faults.one_world", kind, name, str(seconds)]
            with log.open("w") as errors:
                world = start_child(
                    [*program, *map(str, seeds)],
                    env={**os.environ, **clock.variables},
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            assert world.stdout is not None
            with world.stdout:
                for line in world.stdout:
                    yield Result.from_json(line)
                    seeds = seeds[1:]
            if world.wait() and seeds:
                failure = f"the world ended with {world.returncode}: {log.read_text()[-2000:]}"
                faults = schedule_of(kind, seeds[0], seconds)
                yield Result(
                    seed=seeds[0],
                    faults=list(map(str, faults)),
                    kinds=[fault.kind for fault in faults],
                    messages=[failure],
                )
                seeds = seeds[1:]


if __name__ == "__main__":
    main()
