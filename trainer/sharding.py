"""The sharding of a run's tables over its ranks: planned from a sample of the data, and stored.

N ranks, B samples of a global batch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from hotrow.atomic_text import write_atomically
from hotrow.config import RunConfig
from hotrow.errors import DataLossError
from hotrow.ops.planner import SCHEMES, Sample, ShardingPlan, describe_plan, plan_sharding
from hotrow.ops.planner.plan_text import bytes_text
from hotrow.spec import FeatureConfig, Staleness
from hotrow.trainer.data import BatchStream, each_path, expected_rows
from hotrow.trainer.models.feature_tables import column_of, model_features

SHARDING = "sharding.json"
"""The file of the plan, in the run directory."""

OF_WHOLE_ROWS = ("row", "table")
"""Schemes whose rows are whole at one rank: others may keep them."""

PLANNED_ON_GPUS = ("row", "table", "column", "row_broadcast")
"""Schemes that send at most the planned bytes between GPUs; `replicated` sends more."""

SAMPLE_BATCHES, SAMPLE_ROWS = 64, 1 << 18
"""What is measured at most; of larger batches one."""


def plan_tables(
    config: RunConfig, ranks: int, memory_budget_bytes: float | None = None
) -> ShardingPlan:
    """Returns a plan for the tables of a run, from the first batches that it will train on.

    Args:
        config: the run's configuration; schemes that it names are kept.
        ranks: N.
        memory_budget_bytes: budget for rows on a rank; None: no bound.

    Raises:
        NotFoundError, DataError: the training file is missing or malformed.
        InvalidArgumentError: a table cannot have the scheme that the configuration names.
    """
    features = model_features(config)
    tables = list({feature.table.name: feature.table for feature in features}.values())
    sample = sample_tables(config, features, ranks)
    return plan_sharding(
        tables,
        sample.facts(sum(map(expected_rows, each_path(config.data.train)))),
        ranks=ranks,
        batch_size=config.data.batch_size,
        forced={table.name: _forced(config, table.name) for table in tables},
        schemes=_schemes(config),
        memory_budget_bytes=memory_budget_bytes,
        sample_batches=sample.batches,
        sample_rows=sample.rows,
    )


def staleness_of(config: RunConfig, rows: Mapping[str, float]) -> dict[str, Staleness]:
    """Returns the staleness of each table; empty without `parallel.staleness`.

    Args:
        config: the run's configuration.
        rows: expected rows, by table.
    """
    parallel = config.parallel
    if not parallel.staleness:
        return {}
    return {
        table: Staleness(parallel.staleness, max(1, round(parallel.replica_ratio * count)))
        for table, count in rows.items()
    }


def sample_tables(config: RunConfig, features: list[FeatureConfig], ranks: int) -> Sample:
    """Returns measurements of the first 64 batches of a run, or of fewer with 2^18 rows.

    These are the first batches of training, in its order, read an extra time. If training shuffles
    more than 2^18 rows at once, only the first 2^18 are shuffled. Memory holds these windows
    (`BatchStream`), one batch and 1.5 MB a table.

    Args:
        config: the run's configuration.
        features: the model's features.
        ranks: N.
    """
    batch_size = config.data.batch_size
    most = max(1, min(SAMPLE_BATCHES, SAMPLE_ROWS // batch_size))
    seed = config.seed if config.train.shuffle else None
    window = min(config.train.shuffle_buffer, SAMPLE_ROWS)
    train = config.train.model_copy(update={"shuffle_buffer": window})
    config = config.model_copy(update={"train": train})
    sample = Sample(features, ranks)
    stream = iter(BatchStream(config.data.train, config, shuffle_seed=seed))
    with contextlib.closing(stream):  # type: ignore[type-var]
        for batch in stream:
            if batch.size < batch_size and sample.batches:
                break  # the file's last batch may be short
            keys = {feature.name: batch.sparse[column_of(feature.name)] for feature in features}
            sample.add(keys, batch.size)
            if sample.batches == most:
                break
    return sample


def plan_of_run(
    config: RunConfig,
    ranks: int,
    run_dir: Path,
    resume: bool,
    say: Callable[[str], None],
    memory_budget_bytes: float | None = None,
) -> ShardingPlan:
    """Returns the plan of a run, and writes it; a resumed run keeps its plan if that still fits.

    Args:
        config: the run's configuration.
        ranks: N.
        run_dir: where the plan is stored.
        resume: whether the run is resumed.
        say: called with the plan; before it, with a line if a resumed run gets another plan.
        memory_budget_bytes: budget for rows on a rank; None: no bound. Not used with caches on
            GPUs.

    Raises:
        as `plan_tables`; OSError: the plan cannot be written.
    """
    if config.cache.device != "cpu":
        memory_budget_bytes = None
    if resume:
        earlier, why = None, f"it has no {SHARDING}"
        with contextlib.suppress(FileNotFoundError):
            try:
                earlier = read_plan(run_dir)
                why = _unfit(earlier, config, ranks, memory_budget_bytes)
            except DataLossError as err:
                why = str(err)
        if earlier is not None and not why:
            say(describe_plan(earlier))
            return earlier
        say(f"the tables of {run_dir} are planned anew: {why}")
    plan = plan_tables(config, ranks, memory_budget_bytes)
    write_plan(run_dir, plan)
    say(describe_plan(plan))
    return plan


def read_plan(run_dir: Path) -> ShardingPlan:
    """Returns the plan of a run.

    Raises:
        FileNotFoundError: the run has no plan.
        DataLossError: the file is damaged.
    """
    path = run_dir / SHARDING
    try:
        return ShardingPlan.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as err:
        raise DataLossError(f"{path} is damaged: {err}") from err


def write_plan(run_dir: Path, plan: ShardingPlan) -> None:
    """Writes the plan of a run atomically.

    Raises:
        OSError: the disk is full or refuses.
    """
    write_atomically(run_dir / SHARDING, json.dumps(plan.to_dict(), indent=1) + "\n")


def _schemes(config: RunConfig) -> tuple[str, ...]:
    """Returns the schemes that `auto` chooses from."""
    if config.parallel.staleness:
        return OF_WHOLE_ROWS
    return SCHEMES if config.cache.device == "cpu" else PLANNED_ON_GPUS


def _forced(config: RunConfig, table: str) -> str:
    return config.table_settings(table).sharding or config.parallel.sharding


def _unfit(plan: ShardingPlan, config: RunConfig, ranks: int, budget: float | None) -> str:
    """Returns why a plan cannot be kept; "" if it can.

    A plan that was over its own budget is kept: another one would be, too.
    """
    if plan.ranks != ranks:
        return f"it was for {plan.ranks} ranks, now there are {ranks}"
    dims = {feature.table.name: feature.table.embedding_dim for feature in model_features(config)}
    if {table.name: table.dim for table in plan.tables} != dims:
        return "it was for other tables"
    for table in plan.tables:
        wanted = _forced(config, table.name)
        if wanted != (table.scheme if table.forced else "auto"):
            return f"the configuration asks for {wanted!r} of table {table.name!r}"
        if table.scheme not in _schemes(config) and not table.forced:
            what = "with staleness" if config.parallel.staleness else "with caches on GPUs"
            return f"'auto' does not choose {table.scheme!r} of table {table.name!r} {what}"
    fitted = plan.memory_budget_bytes is None or plan.memory_bytes <= plan.memory_budget_bytes
    if budget is not None and fitted and plan.memory_bytes > budget:
        needed, room = bytes_text(plan.memory_bytes), bytes_text(budget)
        return f"its rows need {needed} at the fullest rank, which has room for {room} now"
    return ""
