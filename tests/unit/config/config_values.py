"""A configuration for tests of the schema, and changes of it."""

from __future__ import annotations

import copy
from typing import Any

import yaml

EXAMPLE = """
name: criteo-dlrm
seed: 2026
data:     {format: criteo, train: train.tsv.gz, valid: valid.tsv.gz, batch_size: 4096}
features:                       # what the file's columns are; `hash` for strings, `log` for counts
  dense:  {columns: [I1, I2], transform: log}
  sparse: {columns: [C1, C2], dim: 16, hash: true}
tables:   {default: {optimizer: adagrad, learning_rate: 0.05, initializer: {uniform: 0.05}}}
model:    {arch: dlrm, bottom: [128, 64, 16], top: [256, 128]}
optimizer: {name: adam, learning_rate: 0.001}        # dense part
cache:    {rows: 1_000_000, policy: lfu, prefetch: 8, warmup: 0.7}
parallel: {workers: 1, sharding: auto, staleness: 0}
checkpoint: {every_steps: 5000, keep: 3}
online:   {source: "redis://...", publish_seconds: 1}
"""


def example() -> dict[str, Any]:
    """The example without a cache and without the section that is not built."""
    values = yaml.safe_load(EXAMPLE)
    return {key: value for key, value in values.items() if key not in ("cache", "online")}


def merged(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Returns a copy with a value at a path such as `data.format`."""
    raw = copy.deepcopy(raw)
    node = raw
    *sections, last = path.split(".")
    for key in sections:
        node = node.setdefault(key, {})
    node[last] = value
    return raw
