"""How long is a training step of the embeddings, against other systems in the same run?

26 features, batch 4096, Zipf(1.05) keys: once with one table of 10 million rows that all features
share, once with 26 tables of 10 M / 26 rows. A step looks up all rows (one key a sample, so there
is nothing to pool), takes given gradients of them, sums these per row and applies the optimizer.
All systems get the same keys: row numbers for dense tables, arbitrary int64 for hash tables, in an
order independent of frequency. All rows exist before the measurement and start at zero, so that
the learned weights can be compared (`probe`: the sum of absolute weights that the first batch
reads at the end).

Peers have their own virtual environments in build/peers, made by --setup.

    python benchmarks/embedding_step.py --setup
    python benchmarks/embedding_step.py [--systems hotrow,tensorflow] [--threads 1] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from peers.worker import LEARNING_RATE, Request
from peers.workload import BATCH, FEATURES, SKEW, Workload

HERE = Path(__file__).parent
VENVS = HERE.parent / "build" / "peers"
TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class System:
    """A system to measure.

    Attributes:
        worker: module that measures it.
        venv: directory below build/peers; None: the environment of this process.
        packages: what --setup installs there.
        environment: variables that its imports need.
    """

    worker: str
    venv: str | None = None
    packages: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter that runs the worker."""
        return Path(sys.executable) if self.venv is None else VENVS / self.venv / "bin" / "python"


# The first is the baseline of ratios.
SYSTEMS = {
    "tensorflow": System("peers.plain_tensorflow"),
    "fbgemm": System("peers.fbgemm", "fbgemm", ("torch==2.13.0", "fbgemm-gpu-cpu==1.8.0", "numpy")),
    "tfra": System(
        "peers.tfra",
        "tfra",
        ("tensorflow==2.16.2", "tf-keras==2.16.0", "tensorflow-recommenders-addons==0.8.1"),
        {"TF_USE_LEGACY_KERAS": "1"},
    ),
    "hotrow": System("peers.hotrow"),
}
FLOOR = System("peers.memory_floor")
CASES = {"one table": 1, "26 tables": FEATURES}


@dataclass
class Measurements:
    """What was measured, and what was not.

    Attributes:
        rows: a dictionary a result: case, threads, system, optimizer, variant and what
            `peers.worker.measure` returns.
        missing: one sentence for each requested measurement that was not made.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def baseline(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Returns plain TensorFlow's row of the same case, threads and optimizer."""
        same = ("case", "threads", "optimizer")
        for other in self.rows:
            if other["system"] == "tensorflow" and all(other[k] == row[k] for k in same):
                return other
        return None


def set_up(names: list[str]) -> None:
    """Makes the virtual environments of the systems that need one."""
    for name in names:
        system = SYSTEMS[name]
        if system.venv is None:
            continue
        directory = VENVS / system.venv
        click.echo(f"{name}: {directory}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        subprocess.run([str(system.python), "-m", "pip", "install", *system.packages], check=True)


def run_worker(system: System, request: Request) -> tuple[list[dict[str, Any]], str | None]:
    """Returns the results of a worker process, and what went wrong."""
    cores = sorted(os.sched_getaffinity(0))[-request.threads :]
    try:
        done = subprocess.run(
            [str(system.python), "-m", system.worker, request.argument()],
            cwd=HERE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **system.environment},
            # Before the imports: libraries size their pools by it.
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [], f"{system.worker} took more than {TIMEOUT_SECONDS} s"
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0:
        return results, None
    last = [line for line in done.stderr.strip().splitlines() if line.strip()][-1:]
    return results, f"{system.worker} ended with {done.returncode}: {' '.join(last)}"


def measure_case(
    measured: Measurements, case: str, workload: Path, names: list[str], request: Request
) -> None:
    """Measures all systems, one after the other, and prints each result as it comes."""
    same = {"case": case, "threads": request.threads}
    click.echo(
        f"\n{case}, {request.threads} thread{'s'[: request.threads - 1]}\n"
        f"{'optimizer':<16}{'system':<12}{'variant':<19}"
        f"{'CPU ms':>9}{'wall ms':>9}{'least':>8}{'CPU ratio':>11}{'faults':>8}  probe"
    )
    for name in names:
        if not SYSTEMS[name].python.exists():
            measured.missing.append(f"{name}: not measured: run --setup")
            click.echo(measured.missing[-1])
            continue
        # One process per optimizer: tables of 10 M rows are never in memory together.
        for optimizer in request.optimizers:
            one = Request(str(workload), request.threads, [optimizer], request.repeats)
            results, problem = run_worker(SYSTEMS[name], one)
            for result in results:
                row = {**same, "system": name, **result}
                measured.rows.append(row)
                click.echo(line_of(row, measured.baseline(row)))
            if problem is not None:
                measured.missing.append(f"{name}, {optimizer}: {problem}")
                click.echo(measured.missing[-1])


def line_of(row: dict[str, Any], baseline: dict[str, Any] | None) -> str:
    """Returns the printed line of a result."""
    start = f"{row['optimizer']:<16}{row['system']:<12}{row['variant']:<19}"
    if "unavailable" in row:
        return f"{start} {row['unavailable']}"
    ratio = f"{row['cpu_ms'] / baseline['cpu_ms']:.2f}" if baseline else "-"
    probe = "-" if row.get("probe") is None else f"{row['probe']:.1f}"
    return (
        f"{start}{row['cpu_ms']:>9.2f}{row['wall_ms']:>9.2f}{row['least_cpu_ms']:>8.2f}"
        f"{ratio:>11}{row['faults']:>8.0f}  {probe}"
    )


def measure_floor(measured: Measurements, case: str, request: Request) -> None:
    """Measures what memory allows for Adagrad, and prints how far hotrow is from it."""
    results, problem = run_worker(FLOOR, request)
    if problem is not None:
        measured.missing.append(f"floor: {problem}")
        click.echo(measured.missing[-1])
        return
    floor = {"case": case, "threads": request.threads, "system": "floor", **results[0]}
    measured.rows.append(floor)
    click.echo(
        f"\nfloor of Adagrad: a step streams {floor['streamed_bytes'] / 1e6:.1f} MB (values, "
        f"gradients, keys) and touches {floor['scattered_bytes'] / 1e6:.1f} MB of lines.\n"
        f"Copy {floor['copy_gb_s']:.1f} GB/s, read and written; random lines: index "
        f"{floor['index_read_ns']:.0f} ns, header and weights {floor['line_read_ns']:.0f} ns, "
        f"update {floor['line_update_ns']:.0f} ns.\n"
        f"Floor {floor['floor_ms']:.2f} ms; a step with known pointers takes "
        f"{floor['wall_ms']:.2f} ms wall, {floor['cpu_ms']:.2f} CPU."
    )
    for row in measured.rows:
        same = all(row[k] == floor[k] for k in ("case", "threads", "optimizer"))
        if row["system"] == "hotrow" and same and "wall_ms" in row:
            click.echo(
                f"hotrow {row['variant']}: {row['wall_ms'] / floor['floor_ms']:.2f} of the floor "
                f"(wall), {row['cpu_ms'] / floor['cpu_ms']:.2f} of known pointers (CPU)"
            )


def disagreements(measured: Measurements) -> list[str]:
    """Returns the cases in which a system and plain TensorFlow learned different weights."""
    found = []
    for row in measured.rows:
        other = measured.baseline(row)
        if other is None or row.get("probe") is None or other.get("probe") is None:
            continue
        # hotrow's Adam corrects the bias by each row's own steps unless asked otherwise.
        own_steps = row["system"] == "hotrow" and not row["variant"].endswith("global")
        if row["optimizer"] == "adam" and own_steps:
            continue
        if abs(row["probe"] - other["probe"]) > 1e-3 * other["probe"]:
            found.append(
                f"{row['case']}, {row['system']}, {row['optimizer']}: probe {row['probe']:.1f}, "
                f"TensorFlow's is {other['probe']:.1f}"
            )
    return found


def to_results(measured: Measurements) -> list[dict[str, Any]]:
    """Returns the measurements in the form that all benchmarks write."""
    results = []
    for row in measured.rows:
        if "unavailable" in row:
            continue
        other = measured.baseline(row)
        name = " ".join(filter(None, (row["system"], row["optimizer"], row["variant"])))
        for metric in ("cpu_ms", "wall_ms", "floor_ms"):
            if metric not in row:
                continue
            results.append(
                {
                    "case": f"{row['case']}, {row['threads']} threads, {name}",
                    "metric": metric.removesuffix("_ms") + "_a_step",
                    "value": row[metric],
                    "unit": "ms",
                    "baseline": "tensorflow" if other else None,
                    "ratio": row[metric] / other[metric] if other and metric in other else None,
                }
            )
    return results


def chosen(_: click.Context, option: click.Parameter, value: str) -> list[str]:
    """Splits a comma-separated option and checks its names."""
    legal = {"systems": list(SYSTEMS), "optimizers": list(LEARNING_RATE), "cases": list(CASES)}
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in legal[str(option.name)]:
            raise click.BadParameter(f"{name!r}; must be of {', '.join(legal[str(option.name)])}")
    return [name for name in legal[str(option.name)] if name in names]


@click.command()
@click.option("--setup", is_flag=True, help="Make the peers' virtual environments and stop.")
@click.option("--systems", default=",".join(SYSTEMS), show_default=True, callback=chosen)
@click.option("--optimizers", default=",".join(LEARNING_RATE), show_default=True, callback=chosen)
@click.option("--cases", default=",".join(CASES), show_default=True, callback=chosen)
@click.option("--threads", default="1,2", show_default=True)
@click.option("--rows", default=10_000_000, show_default=True, help="Of all tables together.")
@click.option("--dim", default=32, show_default=True)
@click.option("--batches", default=12, show_default=True, help="Different ones.")
@click.option("--repeats", default=36, show_default=True, help="Measured steps.")
@click.option("--floor/--no-floor", default=True, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    setup: bool,
    systems: list[str],
    optimizers: list[str],
    cases: list[str],
    threads: str,
    rows: int,
    dim: int,
    batches: int,
    repeats: int,
    floor: bool,
    json_path: Path | None,
) -> None:
    """Measures a training step and prints tables; exit code 1 when something is missing."""
    if setup:
        set_up(systems)
        return
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "packages": {
            "hotrow and tensorflow": f"Python {platform.python_version()}",
            **{name: " ".join(SYSTEMS[name].packages) for name in systems if SYSTEMS[name].venv},
        },
        "features": FEATURES,
        "batch": BATCH,
        "dim": dim,
        "rows": rows,
        "keys": f"Zipf({SKEW})",
        "batches": batches,
        "repeats": repeats,
    }
    for name, value in conditions.items():
        click.echo(f"{name:<12} {value}")
    measured = Measurements()
    with tempfile.TemporaryDirectory() as directory:
        for case in cases:
            workload = Workload.generate(CASES[case], rows, dim, batches)
            path = Path(directory) / f"{CASES[case]}.npz"
            workload.save(path)
            unique = statistics.median(workload.unique_keys())
            del workload
            conditions[f"unique rows a batch, {case}"] = unique
            click.echo(f"\n{case}: {unique:.0f} of {FEATURES * BATCH} keys of a batch are distinct")
            for count in (int(n) for n in threads.split(",")):
                request = Request(str(path), count, optimizers, repeats)
                measure_case(measured, case, path, systems, request)
                if floor and "adagrad" in optimizers:
                    measure_floor(measured, case, request)
    for problem in measured.missing + disagreements(measured):
        click.echo(f"! {problem}", err=True)
    if json_path is not None:
        json_path.write_text(
            json.dumps(
                {
                    "conditions": conditions,
                    "results": to_results(measured),
                    "details": measured.rows,
                    "missing": measured.missing,
                },
                indent=1,
            )
        )
    if measured.missing or disagreements(measured):
        sys.exit(1)


if __name__ == "__main__":
    main()
