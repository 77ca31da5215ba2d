"""`with_list_columns`: the list columns of a run, as stored in its training file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from hotrow.config import RunConfig, SparseGroup, parse_config
from hotrow.trainer.data.data_files import each_path, with_rows
from hotrow.trainer.data.parquet import is_parquet, parquet_schema
from hotrow.trainer.data.parquet_lists import is_list


def with_list_columns(config: RunConfig, path: Path | None = None) -> RunConfig:
    """Returns `config` with `lists: true` for the columns that a data file stores as lists.

    A model needs to know, before it reads a row, which columns have any number of values. Only a
    Parquet file stores that. A group with list columns and others is split; its columns stay in
    order.

    Args:
        config: the run's configuration.
        path: the file; None: the first training file that has rows.

    Raises:
        NotFoundError, DataError: the file is missing or damaged.
        InvalidArgumentError: an option of the group is not allowed for lists.
    """
    if path is None:
        paths = each_path(config.data.train)
        path = next(with_rows(paths), paths[0])
    if config.data.format == "libsvm" or not is_parquet(path):
        return config
    lists = {field.name for field in parquet_schema(path) if is_list(field.type)}
    groups = config.features.sparse
    unset = [group for group in groups if group.lists is None and group.separator is None]
    if not any(lists.intersection(group.columns) for group in unset):
        return config
    raw = config.model_dump()
    raw["features"]["sparse"] = [part for group in groups for part in _parts(group, lists)]
    return parse_config(raw, source=str(path))


def _parts(group: SparseGroup, lists: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yields the settings of a group, split between its list columns and other columns."""
    settings = group.model_dump()
    if group.lists is not None or group.separator is not None:
        yield settings
        return
    for are_lists, columns in groupby(group.columns, key=lambda name: name in lists):
        yield {**settings, "columns": list(columns), "lists": True if are_lists else None}
