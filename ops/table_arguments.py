"""A table's configuration as the arguments of the native core."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hotrow._native import NUMBERS
from hotrow.errors import InvalidArgumentError
from hotrow.ops.ranks import Ranks
from hotrow.spec import (
    Admission,
    Cache,
    Constant,
    Expiry,
    Ftrl,
    Normal,
    Schedule,
    TableConfig,
    TableOptimizer,
    Uniform,
)
from hotrow.spec.admission import MOST_TOMBSTONES


def core_arguments(config: TableConfig, ranks: Ranks, cuda_device: int | None) -> dict[str, Any]:
    """Returns the arguments of `_native.Table` that a configuration determines.

    Args:
        config: the table's configuration.
        ranks: the ranks over which the table is split.
        cuda_device: the GPU that has its cache; None: the cache is in host memory.

    Raises:
        InvalidArgumentError: the owner is not one of the ranks.
    """
    init_kind, init_scale = _initializer_arguments(config)
    return {
        "name": config.name,
        "width": config.embedding_dim,
        "vocabulary_size": -1 if config.vocabulary_size is None else config.vocabulary_size,
        "default_value": config.default_value,
        "init_kind": init_kind,
        "init_scale": init_scale,
        "shards": config.shards,
        "hashed": config.hash_owner,
        "weights_type": NUMBERS["row_type"][config.dtype],
        "state_type": NUMBERS["row_type"][config.state_dtype],
        "optimizer": _optimizer_arguments(config.optimizer),
        "admission": _admission_arguments(config.admission),
        "expiry": _expiry_arguments(config.expiry),
        "cache": _cache_arguments(config.cache, config.vocabulary_size, cuda_device),
        "sharding": _sharding_arguments(config, ranks),
    }


def combiner_number(combiner: str | None) -> int:
    """Returns the native core's number for a combiner."""
    return NUMBERS["combiner"][combiner or "none"]


def _initializer_arguments(config: TableConfig) -> tuple[int, float]:
    match config.initializer:
        case Constant(scale) | Uniform(scale) | Normal(scale):
            return NUMBERS["initializer"][type(config.initializer).__name__], scale


def _optimizer_arguments(optimizer: TableOptimizer) -> dict[str, Any]:
    """Returns the fields of the core's `Optimizer` (optimizer.h)."""
    given = {f.name: getattr(optimizer, f.name) for f in dataclasses.fields(optimizer)}
    rate = given["learning_rate"]
    return {
        "kind": NUMBERS["optimizer"][type(optimizer).__name__],
        # With a schedule each step gets its own rate; NaN shows a step that did not.
        "learning_rate": math.nan if isinstance(rate, Schedule) else rate,
        "clip_row_norm": given["clip_row_norm"] or 0.0,
        "l2": 0.0 if isinstance(optimizer, Ftrl) else given["l2"],
        "weight_decay": given["weight_decay"],
        "momentum": given.get("momentum", 0.0),
        "nesterov": given.get("nesterov", False),
        "initial_accumulator": given.get("initial_accumulator_value", 0.0),
        "epsilon": given.get("epsilon", 0.0),
        "beta_1": given.get("beta_1", 0.0),
        "beta_2": given.get("beta_2", 0.0),
        "row_steps": given.get("bias_correction", "row") == "row",
        "l1": given.get("l1", 0.0),
        "ftrl_l2": given["l2"] if isinstance(optimizer, Ftrl) else 0.0,
        "l2_shrinkage": given.get("l2_shrinkage", 0.0),
        "beta": given.get("beta", 0.0),
    }


def _admission_arguments(admission: Admission | None) -> dict[str, Any]:
    if admission is None:
        return {
            "kind": NUMBERS["admission"]["always"],
            "occurrences": 1,
            "expected_keys": 0,
            "error_rate": 0.01,
        }
    return {
        "kind": NUMBERS["admission"][admission.filter],
        "occurrences": admission.occurrences,
        "expected_keys": admission.expected_keys or 0,
        "error_rate": admission.error_rate,
    }


def _expiry_arguments(expiry: Expiry | None) -> dict[str, int]:
    """Returns the core's options; 0 turns one off."""
    if expiry is None:
        never = {"after_steps": 0, "rare_count": 0, "rare_after_steps": 0, "sweep_steps": 1}
        # Rows that are removed by hand leave tombstones, too.
        return {**never, "tombstones": MOST_TOMBSTONES}
    return {name: value or 0 for name, value in dataclasses.asdict(expiry).items()}


def _cache_arguments(
    cache: Cache | None, vocabulary_size: int | None, cuda_device: int | None
) -> dict[str, int | str]:
    if cache is None:
        return {"rows": 0, "bytes": 0, "policy": 0, "disk": ""}
    rows = cache.rows or 0
    if cache.ratio is not None:
        rows = max(round(cache.ratio * (vocabulary_size or 0)), 1)
    return {
        "rows": rows,
        "bytes": cache.bytes or 0,
        "policy": NUMBERS["cache_policy"][cache.policy],
        "disk": cache.disk or "",
        **({} if cuda_device is None else {"gpu": cuda_device}),
    }


def _sharding_arguments(config: TableConfig, ranks: Ranks) -> dict[str, int | str]:
    if ranks.size == 1:
        return {}
    owner = config.owner or 0
    if owner >= ranks.size:
        raise InvalidArgumentError(
            f"table {config.name!r}: owner is {owner}; must be below {ranks.size}, the ranks"
        )
    scheme = NUMBERS["sharding"][config.sharding]
    staleness = config.staleness
    return {
        "ranks": ranks.handle,
        "scheme": scheme,
        "owner": owner,
        "staleness": staleness.updates if staleness else 0,
        "replica_rows": staleness.rows if staleness else 0,
    }
