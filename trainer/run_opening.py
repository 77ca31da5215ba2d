"""Prepares a run for its first step: opens data and directory, and plans the sharding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hotrow.config import RunConfig
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import agreed, of_first
from hotrow.trainer.data.data_files import DataFiles
from hotrow.trainer.data.list_columns import with_list_columns
from hotrow.trainer.data.positive_label import check_positive
from hotrow.trainer.models.split import Split
from hotrow.trainer.rank_memory import row_budget_bytes
from hotrow.trainer.run_directory import RunDirectory, default_run_directory, read_config
from hotrow.trainer.sharding import plan_of_run, staleness_of
from hotrow.trainer.source_run import SourceRun, find_source
from hotrow.trainer.start_rules import check_start
from hotrow.trainer.training_files import files_of


def checked_data(config: RunConfig, report: Callable[[str], None]) -> RunConfig:
    """Reads the first rows of the data files, so that errors show before anything is written.

    Args:
        config: the run's configuration.
        report: called with a line if `data.positive` is not among many first labels.

    Returns:
        The configuration with settings that only the training file shows: the list columns.

    Raises:
        NotFoundError, InvalidArgumentError, DataError: a file is missing or cannot be used.
    """
    config.data.require_files()
    config = with_list_columns(config)
    for paths in (config.data.train, config.data.valid):
        if paths is not None:
            DataFiles(paths, config.data, config.features).require_rows()
            check_positive(paths, config.data, report)
    return config


def agreed_data(config: RunConfig, ranks: Ranks) -> RunConfig:
    """Returns the result of `checked_data`, if it succeeds on all ranks; rank 0 prints its line."""

    def report(line: str) -> None:
        if ranks.is_first:
            print(line, file=sys.stderr)

    return agreed(ranks, "data files", lambda: checked_data(config, report))


def agreed_source(config: RunConfig, start_from: Path, force: bool, ranks: Ranks) -> SourceRun:
    """Returns the checkpoint that a run starts from, checked to fit; rank 0 chooses it for all."""

    def find() -> dict[str, Any] | None:
        if not ranks.is_first:
            return None
        source = find_source(start_from, force, partial(print, file=sys.stderr))
        if not force:
            check_start(Path(source.run), read_config(Path(source.run)), config)
        return source.as_json()

    return SourceRun(**of_first(ranks, "start of the run", agreed(ranks, "start of the run", find)))


def open_directory(
    config: RunConfig, run_dir: Path | None, resume: bool, source: SourceRun | None, ranks: Ranks
) -> RunDirectory:
    """Opens the run directory on rank 0, for all ranks."""

    def open_it() -> RunDirectory | None:
        if not ranks.is_first:
            return None
        path = default_run_directory(config.name) if run_dir is None else run_dir
        files = files_of(config.data.train)
        if resume:
            return RunDirectory.reopen(path, config, files, partial(print, file=sys.stderr))
        from_run = None if source is None else source.as_json()
        return RunDirectory.create(path, config, from_run, files)

    own = agreed(ranks, "run directory", open_it)
    if ranks.size == 1:
        assert own is not None
        return own
    path = of_first(ranks, "run directory", None if own is None else str(own.path))
    return RunDirectory.join(Path(path), config) if own is None else own


def split_of(config: RunConfig, directory: RunDirectory, resume: bool, ranks: Ranks) -> Split:
    """Plans the sharding on rank 0, for all ranks."""
    if ranks.size == 1:
        return Split(ranks)

    budget = row_budget_bytes(ranks)

    def plan() -> list[dict[str, Any]]:
        if not ranks.is_first:
            return []
        say = partial(print, file=sys.stderr)
        made = plan_of_run(config, ranks.size, directory.path, resume, say, budget)
        return [made.schemes(), made.owners(), made.rows()]

    plan_of_first = of_first(ranks, "plan of tables", agreed(ranks, "plan of tables", plan))
    schemes, owners, rows = plan_of_first
    return Split(ranks, schemes, owners, staleness_of(config, rows))
