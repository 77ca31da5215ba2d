"""Does the memory of a trainer stay as it is while it publishes 10,000 cuts?

`platform train --online` on a file of events that grows, as in `freshness.py`, with a cut every
20 ms, a Redis and a server that follows. All keys have their rows before the first look. Printed at
each look: cuts so far, those that are not folded, resident memory of the trainer, `used_memory` of
Redis. At the end: growth a cut, the slope of a line through the second half of the looks.

    python benchmarks/trainer_memory.py [--cuts 10000] [--rate 2000] [--json F]
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from estimates import slope
from fresh_system import CONFIG, DIM, PUBLISHING, Status, server, trainer, writer
from fresh_traffic import event_lines
from redis_process import port_of, redis_server

GOAL_BYTES = 1024
_FIRST_EVENTS = 400_000
_LONGEST_SECONDS = 3600.0


def resident(pid: int) -> int:
    """Returns the resident bytes of a process, without files that it has mapped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


@click.command()
@click.option("--cuts", default=10_000, show_default=True)
@click.option("--rate", default=2000.0, show_default=True, help="Changed rows a second.")
@click.option("--json", "to", type=click.Path(path_type=Path))
def main(cuts: int, rate: float, to: Path | None) -> None:
    """Runs it, and prints looks and goals."""
    click.echo(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name, redis_server() as redis:
        folder, port = Path(name), port_of(redis)
        (folder / "history.csv").write_text("clicked,price,user,item\n0,0.5,1,1\n1,0.5,2,2\n")
        events = folder / "events.jsonl"
        events.write_text(event_lines(np.random.default_rng(3), _FIRST_EVENTS, time.time()))
        text = CONFIG.format(batch=1024, dim=DIM, source=f"file:{events}", publish_seconds=0.02)
        text = text.replace("max_batch_seconds: 0.1", "max_batch_seconds: 0.01")
        (folder / "fresh.yaml").write_text(text + PUBLISHING.format(folder=folder, port=port))
        looks: list[dict[str, float]] = []
        with trainer(folder) as training:
            status = Status(folder)
            while status().publishing.cuts < 1 or status().stream.lag_events:
                time.sleep(0.5)
            with server(folder):
                writing = writer(folder / "events.jsonl", rate / 2, _LONGEST_SECONDS)
                try:
                    first = status().publishing.cuts
                    while not looks or looks[-1]["cuts"] < cuts:
                        time.sleep(5.0)
                        now = status().publishing
                        looks.append(
                            {
                                "cuts": now.cuts - first,
                                "unfolded": now.unfolded_cuts,
                                "trainer": resident(training.pid),
                                "redis": float(redis.info("memory")["used_memory"]),
                            }
                        )
                        show(looks[-1])
                finally:
                    writing.terminate()
                    writing.wait()
    for part in ("trainer", "redis"):
        goal = f" (aimed at: {GOAL_BYTES})" if part == "trainer" else ""
        click.echo(f"growth of {part}: {slope(looks, part):.0f} bytes a cut{goal}")
    click.echo(f"load now {os.getloadavg()[0]:.1f}")
    if to is not None:
        to.write_text(json.dumps(looks, indent=1) + "\n")


def show(look: dict[str, float]) -> None:
    """Prints a look."""
    click.echo(
        f"{look['cuts']:>7,.0f} cuts: {look['unfolded']:>3.0f} not folded; trainer "
        f"{look['trainer'] / 2**20:7.2f} MiB, redis {look['redis'] / 2**20:7.2f}"
    )


if __name__ == "__main__":
    main()
