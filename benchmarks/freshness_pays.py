"""Does freshness pay? AUC of predictions over gRPC by models of three ages, scored before training.

    python benchmarks/freshness_pays.py [globo|generated ...] [--seeds 5] [--json F] [--plot F]

`platform train --online` learns a stream of events, and a server follows its cuts (`online`), gets
an export of the trainer's state at each full hour of event time (`hourly`), and keeps the model of
before (`frozen`). A client asks the server for the scores of all three, over gRPC, before it hands
the events on to the trainer. Event time is compressed: `freshness` says how many seconds of it pass
from one cut to the next.

    globo       clicks of Globo.com's news, with 3 negatives each of the articles of the hour before
    generated   `DriftingClicks`; the model that drew the labels (`oracle`) is the ceiling

A seed draws the negatives, or all events, and the first weights. Exits 1 unless online > hourly >
frozen in the mean AUC.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
from pays.outcome import outcome
from pays.plan import CASES
from pays.replay import replay
from pays.report import conditions, means, plot, rounded, summary, table
from pays.system import running


def measure(
    name: str, seed: int, hours: int, speed: float, publish_seconds: float
) -> dict[str, Any]:
    """Replays one data set with one seed."""
    began = time.monotonic()
    case = CASES[name]
    base, events, begin = case.make(seed, hours)
    with (
        tempfile.TemporaryDirectory(prefix="hotrow-pays-") as folder,
        running(Path(folder), case, seed, base, publish_seconds) as system,
    ):
        found = replay(system, events, begin, speed)
        result = outcome(events, begin, found, system, speed)
    return {
        "case": name,
        "seed": seed,
        "base_events": len(base),
        **result,
        "seconds": time.monotonic() - began,
    }


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(CASES)), metavar="[CASE]...")
@click.option("--seeds", default=5, show_default=True)
@click.option("--first-seed", default=1, show_default=True)
@click.option("--hours", default=6, show_default=True, help="Of event time that are replayed.")
@click.option("--speed", default=240.0, show_default=True, help="Event seconds a second, at most.")
@click.option("--publish-seconds", default=0.5, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
@click.option("--plot", "plot_path", type=click.Path(path_type=Path))
def main(
    names: tuple[str, ...],
    seeds: int,
    first_seed: int,
    hours: int,
    speed: float,
    publish_seconds: float,
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Does freshness pay?"""
    stated = conditions(hours, speed, publish_seconds)
    print(", ".join(f"{key} {value}" for key, value in stated.items()), flush=True)
    results: list[dict[str, Any]] = []
    for seed in range(first_seed, first_seed + seeds):
        for name in names or sorted(CASES):
            results.append(measure(name, seed, hours, speed, publish_seconds))
            print(table(results[-1:]), flush=True)
            found = {"conditions": stated, "summary": summary(results), "runs": results}
            if json_path is not None:
                json_path.write_text(json.dumps(rounded(found), indent=1) + "\n")
    print(table(results), means(found["summary"]), sep="\n")
    if plot_path is not None:
        plot(results, plot_path)
    if not all(own["in_order"] for own in found["summary"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
