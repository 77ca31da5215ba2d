"""Runs the demo: `python -m hotrow.cli.demo --to DIR [--data FILE]`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click

from hotrow.cli.demo.steps import Demo
from hotrow.cli.failures import report_failure
from hotrow.errors import HotrowError, InvalidArgumentError

# Output of an earlier demo, which the next one replaces; other files in the folder stay.
ARTEFACTS = (
    *("data", "run", "models", "config.yaml", "report.json", "server.log", "redis.log"),
    *("clicks.yaml", "history.csv", "models.config", "monitoring.config", "online.png"),
    *("train.log", "server-1.log", "server-2.log"),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where data, run, exports and report go; an earlier demo there is replaced.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="A Criteo-format file: the first 80 % train, the rest validate. Default: generated.",
)
@click.option(
    "--rows", type=click.IntRange(min=1000), default=300_000, show_default=True, help="To generate."
)
@click.option(
    "--store",
    type=click.Choice(["redis"]),
    help="Rows in a Redis that the demo starts. Default: in the version directory.",
)
@click.option("--online", is_flag=True, help="Online learning instead: see the user guide.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=10),
    default=90.0,
    show_default=True,
    help="With --online: for how long.",
)
def demo(
    folder: Path, data: Path | None, rows: int, store: str | None, online: bool, seconds: float
) -> None:
    """Data -> train -> export -> serve -> predict -> evaluate -> stop, with a report."""
    if data is not None and not data.is_file():
        raise InvalidArgumentError(f"DATA={data}: no such file; give a Criteo-format file")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARTEFACTS:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if online:
        from hotrow.cli.demo.online_demo import OnlineDemo

        OnlineDemo(folder.resolve(), seconds).run()
        return
    Demo(folder.resolve(), data.resolve() if data else None, rows, store).run()


def main() -> int:
    """Runs the demo and returns its exit code; prints an error as one line."""
    try:
        demo.main(standalone_mode=False)
    except subprocess.CalledProcessError as err:
        step = " ".join(map(str, err.cmd))
        failure = HotrowError(f"this step ended with exit code {err.returncode}: {step}")
        return report_failure(failure, debug=False)
    except (Exception, KeyboardInterrupt) as err:
        return report_failure(err, debug=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
