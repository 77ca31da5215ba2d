"""How well do our models learn? AUC on rows that neither training nor tuning has seen.

    python benchmarks/quality.py [criteo|adult|generated ...] [--seeds 5] [--json FILE]

Each seed is a fresh `platform train` of the configuration in `quality/`, which fixes the number of
epochs. Training gets no validation rows; a second call measures the finished model on the
reported rows, once. Exits 1 when a mean AUC misses its bar.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("SHARED") or HERE.parent.parent / "shared")
PLATFORM = (sys.executable, "-m", "hotrow.cli.main")
CRITEO_TRAIN_ROWS, ADULT_TRAIN_ROWS = 8_000, 26_048
GENERATED_ROWS, GENERATED_REPORT_ROWS = 1_000_000, 200_000
GENERATED_MARGIN = 0.01  # below the AUC of the true model
Result = dict[str, str | float | None]


@dataclass(frozen=True)
class Split:
    """The files of a case.

    Attributes:
        train: file to train on.
        report: file to measure, once, at the end.
        bar: the least mean AUC on it.
        bar_name: where the bar comes from.
    """

    train: Path
    report: Path
    bar: float
    bar_name: str


def run_platform(*arguments: str) -> dict[str, Any]:
    """Returns the report of a `platform` command; drops its progress unless it fails.

    Raises:
        SystemExit: the command failed; carries its output.
    """
    command = [*PLATFORM, *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def split_rows(source: Path, train_rows: int, folder: Path) -> tuple[Path, Path]:
    """Writes the first `train_rows` lines of a .gz file and the rest; returns both paths."""
    if not source.is_file():
        raise SystemExit(f"{source} is not there; set SHARED to the folder of shared data sets")
    with gzip.open(source, "rt", encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines(keepends=True) if line.strip()]
    train, report = folder / f"train-{source.stem}", folder / f"report-{source.stem}"
    train.write_text("".join(lines[:train_rows]), encoding="utf-8")
    report.write_text("".join(lines[train_rows:]), encoding="utf-8")
    return train, report


def split_criteo(folder: Path) -> Split:
    """Returns the first 8,000 and the last 2,000 rows of Criteo head10k."""
    source = SHARED / "data/criteo_head10k/criteo_head10k.tsv.gz"
    return Split(*split_rows(source, CRITEO_TRAIN_ROWS, folder), 0.73, "our own bar")


def split_adult(folder: Path) -> Split:
    """Returns the first 26,048 rows of Adult census and the others."""
    source = SHARED / "data/adult_census/adult.data.gz"
    return Split(*split_rows(source, ADULT_TRAIN_ROWS, folder), 0.91, "our own bar")


def split_generated(folder: Path) -> Split:
    """Returns two generated files of one true model; its AUC on the second one sets the bar."""
    train, report = folder / "train.tsv", folder / "report.tsv"
    truth = run_platform(
        *("data", "generate", str(train), "--rows", str(GENERATED_ROWS)),
        *("--valid-rows", str(GENERATED_REPORT_ROWS), "--valid-out", str(report)),
    )
    [auc] = [file["true_auc"] for file in truth["files"] if file["path"] == str(report)]
    return Split(train, report, auc - GENERATED_MARGIN, f"true model {auc:.4f} - 0.01")


CASES: dict[str, tuple[Path, Callable[[Path], Split]]] = {
    "criteo": (HERE / "quality/criteo_head10k.yaml", split_criteo),
    "adult": (HERE / "quality/adult.yaml", split_adult),
    "generated": (HERE / "quality/generated.yaml", split_generated),
}


def train_and_report(config: Path, split: Split, seed: int, run_dir: Path) -> tuple[float, float]:
    """Returns AUC and logloss on the reported rows of a model trained with `seed`."""
    train = ["train", str(config), "--run-dir", str(run_dir), "--set", f"seed={seed}"]
    train += ["--set", f"data.train={split.train}"]
    run_platform(*train)
    # Nothing is left to train: this loads the last checkpoint and measures it.
    quality = run_platform(*train, "--resume", "--set", f"data.valid={split.report}")
    return quality["valid_auc"], quality["valid_logloss"]


def measure(case: str, seeds: int) -> tuple[list[Result], list[int], bool]:
    """Prints the table of a case; returns results, [train, reported] rows, whether it passed."""
    config, make_split = CASES[case]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="hotrow-quality-") as name:
        split = make_split(Path(name))
        rows = [sum(1 for _ in path.open("rb")) for path in (split.train, split.report)]
        print(f"\n{case}: {rows[0]:,} rows to train, {rows[1]:,} reported, {config.name}")
        print(f"{'seed':>6}{'auc':>9}{'logloss':>9}", flush=True)
        metrics = []
        for seed in range(1, seeds + 1):
            metrics.append(train_and_report(config, split, seed, Path(name) / f"seed-{seed}"))
            print(f"{seed:>6}{metrics[-1][0]:>9.4f}{metrics[-1][1]:>9.4f}", flush=True)
    for metric, values in zip(("auc", "logloss"), zip(*metrics, strict=True), strict=True):
        bar = split.bar if metric == "auc" else None
        statistic = {f"seed {seed}": value for seed, value in enumerate(values, 1)}
        statistic |= {"mean": statistics.fmean(values)}
        if seeds > 1:
            statistic |= {"deviation": statistics.stdev(values)}
        for label, value in statistic.items():
            compared = bar is not None and label != "deviation"
            results.append(
                {
                    "case": f"{case}, {label}",
                    "metric": metric,
                    "value": value,
                    "unit": "nats" if metric == "logloss" else "1",
                    "baseline": f"{split.bar_name}: {bar:.4f}" if compared else None,
                    "ratio": value / bar if compared and bar is not None else None,
                }
            )
    columns = list(zip(*metrics, strict=True))
    print(f"{'mean':>6}" + "".join(f"{statistics.fmean(column):>9.4f}" for column in columns))
    if seeds > 1:
        print(f"{'+-':>6}" + "".join(f"{statistics.stdev(column):>9.4f}" for column in columns))
    reached = statistics.fmean(columns[0]) >= split.bar
    verdict = "reached" if reached else "MISSED"
    print(f"bar {split.bar:.4f} ({split.bar_name}): {verdict}", flush=True)
    return results, rows, reached


def conditions(seeds: int) -> dict[str, str | int | None]:
    """Returns what the numbers depend on."""
    versions = {
        name: importlib.metadata.version(name) for name in ("hotrow", "tensorflow", "keras")
    }
    return {
        "seeds": seeds,
        **versions,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
    }


def main() -> int:
    """Returns the exit code: 0 when every bar was reached, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all if none")
    parser.add_argument("--seeds", type=int, default=5, help="training seeds a case (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    for case in arguments.cases:
        if case not in CASES:
            parser.error(f"unknown case {case!r}; choose from {', '.join(CASES)}")
    if arguments.seeds < 1:
        parser.error(f"--seeds is {arguments.seeds}; it must be at least 1")
    stated = conditions(arguments.seeds)
    print(", ".join(f"{key} {value}" for key, value in stated.items()))
    results: list[Result] = []
    rows: dict[str, list[int]] = {}
    all_reached = True
    for case in dict.fromkeys(arguments.cases or CASES):
        metrics, rows[case], reached = measure(case, arguments.seeds)
        results += metrics
        all_reached = all_reached and reached
    if arguments.json:
        text = json.dumps({"conditions": {**stated, "rows": rows}, "results": results}, indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if all_reached else 1


if __name__ == "__main__":
    sys.exit(main())
