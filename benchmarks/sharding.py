"""Does each way of splitting tables over ranks send what its formula says, and does `auto` choose?

Ranks are threads of this process; the bytes that they send each other are counted, their time is
not measured. `formulas`: 26 tables with the cardinalities of Criteo's columns, Zipf(1.05), by every
scheme of OneFlow's Wide & Deep. Its formulas are for many ranks; 1/N of a rank's data stays on it,
so (N-1)/N of the formula's bytes are expected. `row` against `column` on the same data: at
most the share of keys that are distinct. `sweep`: tables of many kinds; every scheme is run, and
`auto` plans on other batches than those. The cheapest has the least bytes at the busiest rank, in
each exchange the larger direction.

    python benchmarks/sharding.py [--only formulas|sweep] [--dim 16] [--batch 4096] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import numpy.typing as npt
from peers.sharded_step import Batch, Keys, measure, split_as
from peers.workload import SKEW, hash_keys

import hotrow
from hotrow.ops.planner import SCHEMES, Sample, ShardingPlan, Volume, plan_sharding, volume

Ints = npt.NDArray[np.int64]
# Distinct values of C1 to C26 in the Kaggle data set.
CRITEO = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
SAMPLED, MEASURED = 8, 2  # batches
FORMULA_GOAL, CHOICE_GOAL, TIE = 0.05, 0.9, 1.02


@dataclass(frozen=True)
class Column:
    """A column of keys.

    Attributes:
        rows: number of distinct keys.
        skew: exponent of Zipf's law; 0: uniform.
        hot: keys a sample on average, anything from none to twice as many; None: exactly one.
        weighted: keys have weights.
        combiner: how rows are pooled.
        stride: factor of the keys; a multiple of the ranks gives all of them one owner. 0: keys
            are hashes.
    """

    rows: int
    skew: float = SKEW
    hot: int | None = None
    weighted: bool = False
    combiner: Any = "sum"
    stride: int = 0

    def draw(self, rng: np.random.Generator, batches: int, size: int) -> list[Keys]:
        """Returns the keys of some global batches of `size` samples."""
        counts = np.ones((batches, size), np.int64)
        if self.hot is not None:
            counts = rng.integers(0, 2 * self.hot + 1, (batches, size))
        total = int(counts.sum())
        if self.skew:
            weights = np.cumsum(np.arange(1, self.rows + 1, dtype=np.float64) ** -self.skew)
            ids: Ints = np.searchsorted(weights, rng.random(total) * weights[-1])
        else:
            ids = rng.integers(0, self.rows, total)
        keys = ids * self.stride if self.stride else hash_keys(ids)
        pieces = np.split(keys, np.cumsum(counts.sum(axis=1))[:-1])
        return [self._as_keys(rng, *piece) for piece in zip(pieces, counts, strict=True)]

    def _as_keys(self, rng: np.random.Generator, keys: Ints, counts: Ints) -> Keys:
        splits = None if self.hot is None else np.concatenate([[0], np.cumsum(counts)])
        weights = rng.random(len(keys), np.float32) if self.weighted else None
        return Keys(keys, splits, weights)


@dataclass(frozen=True)
class Case:
    """What is trained: B samples of a global batch over N ranks.

    Attributes:
        tables: width and columns of each.
    """

    name: str
    ranks: int
    batch: int
    tables: tuple[tuple[int, tuple[Column, ...]], ...]

    def features(self) -> list[hotrow.FeatureConfig]:
        """Returns the features, with tables that are not split yet."""
        made = []
        for t, (dim, columns) in enumerate(self.tables):
            table = hotrow.TableConfig(f"t{t}", dim, optimizer=hotrow.SGD())
            made += [
                hotrow.FeatureConfig(f"t{t}f{i}", table, column.combiner)
                for i, column in enumerate(columns)
            ]
        return made

    def draw(self) -> list[Batch]:
        """Returns the batches to plan with, then those to measure."""
        rng = np.random.default_rng(1)
        drawn = {
            f"t{t}f{i}": column.draw(rng, SAMPLED + MEASURED, self.batch)
            for t, (_, columns) in enumerate(self.tables)
            for i, column in enumerate(columns)
        }
        return [dict(zip(drawn, batch, strict=True)) for batch in zip(*drawn.values(), strict=True)]


def sweep_cases() -> list[Case]:
    """Returns tables of many kinds."""

    def one(name: str, ranks: int, batch: int, dim: int, *columns: Column) -> Case:
        return Case(name, ranks, batch, ((dim, columns),))

    million, ten = 10**6, 10**7
    mixed = (
        (16, (Column(ten),)),
        (16, (Column(100),)),
        (64, (Column(ten, 0.5, hot=40),)),
        (1, (Column(ten),)),
        (32, (Column(10**5, hot=5, weighted=True), Column(10**5))),
        (8, (Column(3),)),
    )
    return [
        one("wide part, one key", 2, 4096, 1, Column(million)),
        one("one key", 4, 4096, 16, Column(10**5)),
        one("few rows", 8, 4096, 16, Column(10)),
        one("few rows, wide", 4, 4096, 128, Column(300)),
        one("many rows, no skew", 8, 2048, 128, Column(ten, 0)),
        one("one key, small batch", 8, 64, 64, Column(million)),
        one("50 keys, wide", 4, 512, 128, Column(ten, 0.5, hot=50)),
        one("30 keys, skewed", 8, 1024, 16, Column(million, hot=30)),
        one("200 keys of one column", 2, 512, 1, Column(ten, 0, hot=200)),
        one("20 keys with weights", 2, 1024, 32, Column(million, hot=20, weighted=True)),
        one("3 features share", 4, 2048, 64, *(Column(10**4, 1.2) for _ in range(3))),
        one("sequences, not pooled", 4, 512, 32, Column(10**5, hot=20, combiner=None)),
        one("all rows have one owner", 4, 2048, 16, Column(10**5, stride=4)),
        one("10 keys of few rows", 8, 1024, 8, Column(1000, hot=10)),
        one("5 keys, few columns", 4, 2048, 4, Column(million, 0, hot=5)),
        Case("6 tables of all kinds", 4, 1024, mixed),
    ]


@dataclass(frozen=True)
class Run:
    """A plan that was trained.

    Attributes:
        plan: the schemes.
        moved: bytes of the steps, as counted.
        sizes: bytes of the messages of sizes, at a rank.
        exact: the planner's formulas give the same bytes for these batches, stage by stage and
            rank by rank, but for less than 8 bytes a table and message: each begins at a multiple.
    """

    plan: ShardingPlan
    moved: Volume
    sizes: float
    exact: bool


class Trial:
    """A case, planned on some batches and trained on others."""

    def __init__(self, case: Case) -> None:
        self.case, self.features = case, case.features()
        batches = case.draw()
        self._measured = batches[SAMPLED:]
        sample = Sample(self.features, case.ranks)
        for batch in batches[:SAMPLED]:
            sample.add(batch, case.batch)
        self._facts = sample.facts()
        self.auto = self.plan({})
        seen = Sample(self.features, case.ranks)
        for batch in self._measured:
            seen.add(batch, case.batch)
        self._seen = seen.facts()
        lookups, distinct = (
            sum(float(getattr(f, what).sum(axis=1).mean()) for f in self._seen.values())
            for what in ("lookups", "distinct")
        )
        self.lookups, self.distinct = lookups, distinct / lookups

    def plan(self, forced: dict[str, str]) -> ShardingPlan:
        """Returns a plan with some schemes given."""
        tables = list({f.table.name: f.table for f in self.features}.values())
        return plan_sharding(
            tables,
            self._facts,
            ranks=self.case.ranks,
            batch_size=self.case.batch,
            forced=forced,
            sample_batches=SAMPLED,
            sample_rows=SAMPLED * self.case.batch,
        )

    def all_by(self, scheme: str) -> ShardingPlan | None:
        """Returns a plan with one scheme; None: a table cannot have it."""
        tables = self.auto.tables
        if any(table.costs[scheme].refused for table in tables):
            return None
        return self.plan({table.name: scheme for table in tables})

    def train(self, plan: ShardingPlan) -> Run:
        """Trains the batches that were not used for planning."""
        features = split_as(self.features, plan)
        moved, sizes = measure(features, self._measured, self.case.batch, self.case.ranks)
        expected = Volume.nothing(self.case.ranks)
        for table in plan.tables:
            facts = self._seen[table.name]
            expected += volume(table.scheme, facts, table.dim, table.owner or 0)
        more = moved - expected
        most = 8 * len(plan.tables) * (self.case.ranks - 1)
        exact = all(((side >= 0) & (side < most)).all() for side in (more.sent, more.received))
        return Run(plan, moved, sizes, exact)


def reference_bytes(trial: Trial, scheme: str, dim: int) -> dict[str, float]:
    """Returns the formulas of the reference for a rank and step, by stage, for many ranks."""
    ranks, lookups = trial.case.ranks, trial.lookups
    d = trial.distinct
    forward = {
        "column": 4 * lookups * dim / ranks,
        "row_broadcast": 4 * lookups * dim,
        "row": d * 4 * lookups * dim / ranks,
    }[scheme]
    ids = d * 8 * lookups / ranks if scheme == "row" else 8 * lookups
    return {"keys": ids, "rows": forward, "gradients": forward, "all": ids + 2 * forward}


def show_formulas(batch: int, dim: int, results: list[dict[str, Any]]) -> None:
    """Trains Criteo's tables by each scheme and prints bytes beside the reference's."""
    click.echo(
        f"\nformulas: 26 tables, batch {batch}, dim {dim}, bytes a rank and step; in brackets of "
        f"(N-1)/N of the reference (goal: within {FORMULA_GOAL:.0%})"
    )
    click.echo(
        f"{'N':>2} {'scheme':<14}{'distinct':>9}{'keys':>19}{'rows':>20}{'gradients':>20}"
        f"{'all':>20}{'of the reference':>18}{'sizes':>8}"
    )
    worst, runs = 0.0, []
    for ranks in (2, 4, 8):
        trial = Trial(Case("Criteo", ranks, batch, tuple((dim, (Column(n),)) for n in CRITEO)))
        totals: dict[str, float] = {}
        for scheme in ("column", "row_broadcast", "row"):
            plan = trial.all_by(scheme)
            if plan is None:
                click.echo(f"{ranks:>2} {scheme:<14} has fewer columns than ranks")
                continue
            run = trial.train(plan)
            runs.append(run)
            expected = reference_bytes(trial, scheme, dim)
            sent = dict(run.moved.stages)
            totals[scheme] = sent["all"] = sum(sent.values())
            cells = ""
            for stage in ("keys", "rows", "gradients", "all"):
                ratio = sent[stage] / (expected[stage] * (ranks - 1) / ranks)
                cells += f"{sent[stage]:>12,.0f} ({ratio:.3f})"
                case = f"Criteo, {ranks} ranks, {scheme}, {stage}"
                results.append(_result(case, "bytes", sent[stage], "(N-1)/N of reference", ratio))
            worst = max(worst, abs(ratio - 1))
            click.echo(
                f"{ranks:>2} {scheme:<14}{trial.distinct:>9.3f}{cells}"
                f"{sent['all'] / expected['all']:>18.3f}{run.sizes:>8,.0f}"
            )
        if "column" not in totals:
            continue
        share = totals["row"] / totals["column"]
        met = "met" if share <= trial.distinct else "MISSED"
        click.echo(
            f"   row / column {share:.4f}, at most the distinct share {trial.distinct:.4f}: {met}"
        )
        results.append(
            _result(
                f"Criteo, {ranks} ranks, row",
                "bytes of column's",
                share,
                "distinct share",
                share / trial.distinct,
            )
        )
    click.echo(f"furthest from (N-1)/N of the reference: {worst:.2%}; {_exact(runs)}")


def show_sweep(only: str | None, results: list[dict[str, Any]]) -> None:
    """Trains each case by every scheme and prints what `auto` chose beside it."""
    click.echo(
        "\nsweep: kB a step at the busiest rank; *: the cheapest; within "
        f"{TIE - 1:.0%} of it counts as the cheapest, too"
    )
    click.echo(
        f"{'case':<26}{'N':>2}{'batch':>6}{'lookups':>9}{'distinct':>9}"
        + "".join(f"{scheme:>14}" for scheme in SCHEMES)
        + f"{'auto':>12}{'planned':>9}  schemes of auto"
    )
    right, runs = 0, list[Run]()
    cases = [case for case in sweep_cases() if only is None or only in case.name]
    for case in cases:
        trial = Trial(case)
        by_scheme = {scheme: trial.all_by(scheme) for scheme in SCHEMES}
        done = {scheme: trial.train(plan) for scheme, plan in by_scheme.items() if plan is not None}
        loads = {scheme: run.moved.busiest for scheme, run in done.items()}
        runs += [*done.values(), trial.train(trial.auto)]
        auto = runs[-1].moved.busiest
        least = min(loads.values())
        right += auto <= TIE * least
        cells = [
            "-"
            if scheme not in loads
            else f"{loads[scheme] / 1e3:.1f}{'*' if loads[scheme] == least else ' '}"
            for scheme in SCHEMES
        ]
        chosen = list(trial.auto.schemes().values())
        schemes = ", ".join(f"{scheme} {chosen.count(scheme)}" for scheme in dict.fromkeys(chosen))
        click.echo(
            f"{case.name:<26}{case.ranks:>2}{case.batch:>6}{trial.lookups:>9,.0f}"
            f"{trial.distinct:>9.3f}{''.join(f'{cell:>14}' for cell in cells)}"
            f"{auto / 1e3:>12.1f}{trial.auto.busiest_bytes / auto:>9.3f}  "
            f"{schemes if len(chosen) > 1 else chosen[0]}"
        )
        for scheme, load in [*loads.items(), ("auto", auto)]:
            results.append(
                _result(
                    f"{case.name}, {scheme}",
                    "bytes of the busiest rank",
                    load,
                    "cheapest",
                    load / least,
                )
            )
    goal = "met" if right >= CHOICE_GOAL * len(cases) else "MISSED"
    click.echo(
        f"auto is the cheapest in {right} of {len(cases)} (goal {CHOICE_GOAL:.0%}): {goal}; "
        f"{_exact(runs)}"
    )


def _exact(runs: list[Run]) -> str:
    """Returns a sentence about runs whose bytes are those of the planner's formulas."""
    equal = sum(run.exact for run in runs)
    return f"what the planner's formulas say in {equal} of {len(runs)} runs, but for padding"


def _result(case: str, metric: str, value: float, baseline: str, ratio: float) -> dict[str, Any]:
    return {
        "case": case,
        "metric": metric,
        "value": value,
        "unit": "bytes" if metric.startswith("bytes of the") or metric == "bytes" else "ratio",
        "baseline": baseline,
        "ratio": ratio,
    }


@click.command()
@click.option("--only", type=click.Choice(["formulas", "sweep"]), help="Half of it.")
@click.option("--case", "name", help="Of the sweep, the cases whose name has this.")
@click.option("--dim", default=16, show_default=True, help="Of the formulas' tables.")
@click.option("--batch", default=4096, show_default=True, help="Of the formulas, all ranks.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(only: str | None, name: str | None, dim: int, batch: int, json_path: Path | None) -> None:
    """Counts what ranks send and prints it beside the formulas and the plan."""
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "ranks": "threads of one process",
        "batches": f"{SAMPLED} planned with, {MEASURED} others measured",
    }
    for key, value in conditions.items():
        click.echo(f"{key:<10} {value}")
    results: list[dict[str, Any]] = []
    started = time.monotonic()
    if only != "sweep":
        show_formulas(batch, dim, results)
    if only != "formulas":
        show_sweep(name, results)
    click.echo(f"\n{time.monotonic() - started:.0f} s; load now {os.getloadavg()[0]:.1f}")
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


if __name__ == "__main__":
    main()
