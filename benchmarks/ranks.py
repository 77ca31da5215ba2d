"""How long is a step of the tables on one rank and on two, and where does the time go?

26 tables of 100,000 keys, Zipf(1.05), one key a sample and table, Adagrad, one global batch; ranks
are processes under mpiexec, each with one thread of TensorFlow, on two cores: of one rank, too.
Only the tables are trained: keys in, sums of rows out, constant gradients back. Runs take turns;
times are medians of steps; `cpu` adds up all ranks. A stage's time includes waiting for the other
rank. `prefetch`: keys of the next batch travel while a batch is trained.

    python benchmarks/ranks.py [--dim 16] [--batch 8192] [--steps 60] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).parent
CASES = (
    ("1 rank", 1, "row", "-"),
    ("2 ranks", 2, "row", "-"),
    ("2, prefetch", 2, "row", "prefetch"),
    ("2, column", 2, "column", "-"),
)
STAGES = ("distinct", "sizes", "pack", "keys", "lookup", "rows", "pool", "sum", "gradients",
          "update")  # fmt: skip


def run(ranks: int, dim: int, batch: int, steps: int, sharding: str, prefetch: str) -> Any:
    """Returns what each rank measured."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "steps.json"
        program = ["-m", "peers.rank_steps", str(out)]
        arguments = [str(dim), str(batch), str(steps), sharding, prefetch]
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        env = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        done = subprocess.run(
            [mpiexec, "-n", str(ranks), sys.executable, *program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=env,
            cwd=HERE,
        )
        if done.returncode != 0:
            raise click.ClickException(done.stderr[-2000:])
        return json.loads(out.read_text())


@click.command()
@click.option("--dim", default=16)
@click.option("--batch", default=8192, help="Of all ranks together.")
@click.option("--steps", default=60)
@click.option("--turns", default=3)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(dim: int, batch: int, steps: int, turns: int, json_file: Path | None) -> None:
    """Prints the table."""
    conditions = {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}",
        "case": f"26 tables, dim {dim}, batch {batch}, {steps} steps, {turns} turns",
    }
    for name, value in conditions.items():
        print(f"{name}: {value}")
    measured: dict[str, list[Any]] = {case: [] for case, *_ in CASES}
    for _ in range(turns):
        for case, ranks, sharding, prefetch in CASES:
            measured[case].append(run(ranks, dim, batch, steps, sharding, prefetch))
    print(f"{'':10}{'wall':>8}{'cpu':>8}{'sent':>9} " + "".join(f"{s:>10}" for s in STAGES))
    results: list[dict[str, Any]] = []
    base = statistics.median(ranks[0]["wall_ms"] for ranks in measured[CASES[0][0]])
    for case, runs in measured.items():
        wall = statistics.median(max(rank["wall_ms"] for rank in ranks) for ranks in runs)
        cpu = statistics.median(sum(rank["cpu_ms"] for rank in ranks) for ranks in runs)
        sent = statistics.median(
            statistics.mean(sum(s["bytes"] for s in rank["stages"].values()) for rank in ranks)
            for ranks in runs
        )

        def stage(name: str, runs: Any = runs) -> float:
            return statistics.median(
                statistics.mean(rank["stages"].get(name, {"ms": 0.0})["ms"] for rank in ranks)
                for ranks in runs
            )

        parts = {name: stage(name) for name in STAGES}
        print(
            f"{case:10}{wall:6.1f}ms{cpu:6.1f}ms{sent / 1e6:7.2f}MB "
            + "".join(f"{ms:8.2f}ms" for ms in parts.values())
            + f"  {base / wall:.2f} x"
        )
        results.append(
            {
                "case": case,
                "metric": "step",
                "value": wall,
                "unit": "ms",
                "baseline": CASES[0][0],
                "ratio": wall / base,
            }
        )
        results += [
            {"case": case, "metric": f"stage {name}", "value": ms, "unit": "ms"}
            for name, ms in parts.items()
        ]
    if json_file is not None:
        json_file.write_text(json.dumps({"conditions": conditions, "results": results}, indent=2))


if __name__ == "__main__":
    main()
