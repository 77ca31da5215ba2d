"""The settings that may differ between a run and a new run that starts from its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.config import RunConfig, SparseColumn
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.models.feature_tables import column_of, model_features

# These change how training continues, not the meaning of the existing rows and weights.
_FREE_TO_CHANGE = (
    "name",
    "data.",
    "train.",
    "checkpoint.",
    "export.",
    "cache.",
    "parallel.",
    "online.",
    "embeddings.",
    "optimizer.learning_rate",
    "optimizer.clipnorm",
    "optimizer.global_clipnorm",
    "model.dropout",
    "model.l2",
)
_FIXED = ("data.weights",)
_FIXED_OF_A_TABLE = (
    "optimizer",
    "bias_correction",
    "dtype",
    "state_dtype",
    "initializer",
    "default_value",
)
_FILTER_OPTIONS = ("filter", "expected_keys", "error_rate")
# A column's key keeps its meaning only if these settings do not change.
_MAKES_KEYS = ("table", "hash", "boundaries")
# The storage of a column's values in a file: another file may store them in another way.
_OF_THE_FILE = ("lists", "separator")


@dataclass(frozen=True)
class Difference:
    """A setting that a run which starts from another must keep, unless --force is given.

    Attributes:
        key: its path in the configuration.
        before: its value in the other run.
        now: its value now.
    """

    key: str
    before: Any
    now: Any


def check_start(path: Path, before: RunConfig, now: RunConfig) -> None:
    """Checks that a new run can start from another one as it is.

    Args:
        path: the directory of the other run, for the message.
        before: its configuration.
        now: configuration of the new run.

    Raises:
        InvalidArgumentError: a setting that defines the meaning of rows or weights differs.
    """
    for found in differences_of(before, now):
        raise InvalidArgumentError(
            f"{found.key}: the run in {path} has {found.before!r}, now it is {found.now!r}; keep "
            "it, or add --force to drop the tables and weights that do not fit"
        )


def differences_of(before: RunConfig, now: RunConfig) -> Iterator[Difference]:
    """Yields the settings that differ but must not, in the order of the configuration."""
    outside = {"features", "tables"}
    left = _flat(before.model_dump(exclude=outside))
    right = _flat(now.model_dump(exclude=outside))
    for key in sorted(left.keys() | right.keys()):
        free = key.startswith(_FREE_TO_CHANGE) and key not in _FIXED
        if not free and left.get(key) != right.get(key):
            yield Difference(key, left.get(key), right.get(key))
    yield from _of_columns("dense", before.features.dense_columns(), now.features.dense_columns())
    yield from _of_columns(
        "sparse", before.features.sparse_columns(), now.features.sparse_columns()
    )
    tables = {feature.table.name for feature in model_features(before)}
    for table in dict.fromkeys(feature.table.name for feature in model_features(now)):
        if table in tables:
            yield from _of_table(table, before, now)


def tables_with_other_keys(before: RunConfig, now: RunConfig) -> set[str]:
    """Returns the tables of `now` whose keys had another meaning before, or do not fit now."""
    columns = {column.name: column for column in before.features.sparse_columns()}
    own_columns = {column.name: column for column in now.features.sparse_columns()}
    readers: dict[str, set[str]] = {}
    for feature in model_features(before):
        readers.setdefault(feature.table.name, set()).add(column_of(feature.name))
    found = set()
    for feature in model_features(now):
        table = feature.table.name
        own = own_columns[column_of(feature.name)]
        others = {_key_of(columns[name]) for name in readers.get(table, ())}
        if others and (others != {_key_of(own)} or _is_cut(before, now, table)):
            found.add(table)
    return found


def tables_with_another_filter(before: RunConfig, now: RunConfig) -> set[str]:
    """Returns the tables of `now` whose admission counts keys in another way than before."""
    tables = {feature.table.name for feature in model_features(now)}
    return {table for table in tables if _filter_of(before, table) != _filter_of(now, table)}


def _of_columns(kind: str, before: tuple[Any, ...], now: tuple[Any, ...]) -> Iterator[Difference]:
    names, new_names = [c.name for c in before], [c.name for c in now]
    if names != new_names:
        yield Difference(f"features.{kind}.columns", names, new_names)
        return
    for one, other in zip(before, now, strict=True):
        left, right = dataclasses.asdict(one), dataclasses.asdict(other)
        for option in left:
            if left[option] != right[option] and option not in _OF_THE_FILE:
                key = f"features.{kind}: {option} of column {one.name!r}"
                yield Difference(key, left[option], right[option])


def _of_table(table: str, before: RunConfig, now: RunConfig) -> Iterator[Difference]:
    one, other = before.table_settings(table), now.table_settings(table)
    left, right = one.model_dump(), other.model_dump()
    for option in _FIXED_OF_A_TABLE:
        if left.get(option) != right.get(option):
            yield Difference(f"tables.{table}.{option}", left.get(option), right.get(option))
    if _is_cut(before, now, table):
        sizes = one.vocabulary_size, other.vocabulary_size
        yield Difference(f"tables.{table}.vocabulary_size", *sizes)


def _is_cut(before: RunConfig, now: RunConfig, table: str) -> bool:
    """Returns whether a table may have rows outside of its vocabulary now."""
    size, limit = (one.table_settings(table).vocabulary_size for one in (before, now))
    return limit is not None and (size is None or limit < size)


def _key_of(column: SparseColumn) -> tuple[Any, ...]:
    return tuple(getattr(column, option) for option in _MAKES_KEYS)


def _filter_of(config: RunConfig, table: str) -> tuple[Any, ...] | None:
    admission = config.table_settings(table).admission
    if admission is None:
        return None
    return tuple(getattr(admission, option) for option in _FILTER_OPTIONS)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat
