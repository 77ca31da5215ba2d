"""The tables and features of a layer, and the device of their ops."""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hotrow.errors import InvalidArgumentError, nearest
from hotrow.ops.lookup import LookupLayout
from hotrow.ops.ranks import Ranks
from hotrow.ops.table import Table
from hotrow.spec import FeatureConfig, TableConfig

_LAYERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By id of a `TableConfig`: the layer that has it, and so keeps the id from another use."""
_LEVEL = 3
"""Stack level of the program that makes the layer."""


def as_features(given: Any) -> tuple[FeatureConfig, ...]:
    """Returns the user's features, one or several, as a tuple.

    Raises:
        InvalidArgumentError: the argument is neither.
    """
    if isinstance(given, FeatureConfig):
        return (given,)
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InvalidArgumentError(
            f"DistributedEmbedding: feature_configs is a {type(given).__name__}; must be a "
            "hotrow.FeatureConfig, or a list of them"
        )
    return tuple(given)


def layout_of(features: Sequence[FeatureConfig]) -> LookupLayout:
    """Collects the tables of the features, in the order of their first use.

    Raises:
        InvalidArgumentError: no features, two features of one name, or two configurations of a
            table.
    """
    for feature in features:
        if not isinstance(feature, FeatureConfig):
            raise InvalidArgumentError(
                f"DistributedEmbedding: feature_configs has a {type(feature).__name__}; must be a "
                "hotrow.FeatureConfig, or a list of them"
            )
    if not features:
        raise InvalidArgumentError("DistributedEmbedding: no features; at least one is needed")
    names = [f.name for f in features]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"feature {name!r} is given twice; names must be unique")
    tables: dict[str, TableConfig] = {}
    for feature in features:
        known = tables.setdefault(feature.table.name, feature.table)
        if known != feature.table:
            raise InvalidArgumentError(
                f"table {feature.table.name!r} has two configurations ({known} and "
                f"{feature.table}); features that share a table must use one TableConfig"
            )
    return LookupLayout(tuple(tables.values()), tuple(features))


def check_names(
    what: str, given: Mapping[str, Any], features: Sequence[FeatureConfig], required: bool
) -> None:
    """Checks that a dictionary by feature names features of the layer, and all if `required`.

    Raises:
        InvalidArgumentError: no dictionary, an unknown feature, or one is missing.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"{what} is a {type(given).__name__}; must be a dictionary by feature"
        )
    names = [f.name for f in features]
    for name in given:
        if name not in names:
            raise InvalidArgumentError(
                f"{what} has an unknown feature {name!r}{nearest(name, names)}; the features are "
                f"{', '.join(names)}"
            )
    missing = [name for name in names if name not in given] if required else []
    if missing:
        raise InvalidArgumentError(f"{what} lacks {', '.join(missing)}")


def device_of(layer: str, tables: Iterable[Table]) -> str:
    """Returns the device of a layer's ops; one op looks up all its tables.

    Raises:
        InvalidArgumentError: the tables are on different devices.
    """
    first, *others = tables
    for table in others:
        if table.placement == first.placement:
            continue
        where = [f"{t.name!r} on {t.placement.device}" for t in (first, table)]
        raise InvalidArgumentError(
            f"{layer}: the tables of a layer must be in one place; {' and '.join(where)}: give "
            "both a Cache(device=...) of the same device, or look them up with two layers"
        )
    return first.placement.device


def warn_of_two_layers(layer: Any, tables: Iterable[TableConfig]) -> None:
    """Warns if a `TableConfig` object is a table of another layer, too: each has its own rows."""
    for config in tables:
        other = _LAYERS.setdefault(id(config), layer)
        if other is not layer:
            warnings.warn(
                f"{layer.name}: table {config.name!r} is also a table of {other.name}, but has "
                "rows of its own here; to share rows, give all features to one layer",
                stacklevel=_LEVEL,
            )


def owned(config: TableConfig, number: int, ranks: Ranks) -> TableConfig:
    """Returns the configuration with an owner, if one rank has the whole table."""
    if config.sharding != "table" or config.owner is not None:
        return config
    return dataclasses.replace(config, owner=number % ranks.size)
