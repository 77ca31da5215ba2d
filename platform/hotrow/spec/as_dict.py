"""Tables as JSON types, for Keras' `get_config` and for manifests."""

from __future__ import annotations

import dataclasses
from typing import Any

from hotrow.spec.admission import Admission, Expiry
from hotrow.spec.cache import Cache
from hotrow.spec.initializers import INITIALIZERS
from hotrow.spec.optimizers import OPTIMIZERS
from hotrow.spec.schedules import Schedule
from hotrow.spec.staleness import Staleness
from hotrow.spec.tables import TableConfig

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (*INITIALIZERS, *OPTIMIZERS)}
_OPTIONAL: dict[str, type[Any]] = {
    "admission": Admission,
    "expiry": Expiry,
    "cache": Cache,
    "staleness": Staleness,
}


def table_to_dict(table: TableConfig) -> dict[str, Any]:
    """Returns the table as JSON types; `table_from_dict` reads it back."""
    values = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
    for name in ("initializer", "optimizer"):
        values[name] = {"kind": type(values[name]).__name__, **dataclasses.asdict(values[name])}
    for name in _OPTIONAL:
        if values[name] is not None:
            values[name] = dataclasses.asdict(values[name])
    return values


def table_from_dict(values: dict[str, Any]) -> TableConfig:
    """Returns the table that `table_to_dict` wrote; fields that it lacks have their defaults."""
    values = dict(values)
    for name in ("initializer", "optimizer"):
        options = dict(values[name])
        if isinstance(options.get("learning_rate"), dict):
            options["learning_rate"] = Schedule(**options["learning_rate"])
        values[name] = _KINDS[options.pop("kind")](**options)
    for name, kind in _OPTIONAL.items():
        if values.get(name) is not None:
            values[name] = kind(**values[name])
    return TableConfig(**values)
