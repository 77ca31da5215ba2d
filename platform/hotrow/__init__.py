"""Hotrow: train recommender models with embedding tables of any size, serve them, keep learning.

Importing this package does not import TensorFlow. The first use of `DistributedEmbedding`,
`EarlyStopping`, `bind`, `export_model`, `export_changes` or `ops` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hotrow import native as native
from hotrow.errors import HotrowError
from hotrow.spec import (
    SGD,
    Adagrad,
    Adam,
    Admission,
    Cache,
    Constant,
    Expiry,
    FeatureConfig,
    Ftrl,
    Momentum,
    Normal,
    RowwiseAdagrad,
    Schedule,
    Staleness,
    TableConfig,
    Uniform,
)
from hotrow.version import __version__

if TYPE_CHECKING:
    from hotrow.ops.binding import bind
    from hotrow.ops.early_stopping import EarlyStopping
    from hotrow.ops.embedding import DistributedEmbedding
    from hotrow.ops.export import export_changes, export_model

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Admission",
    "Cache",
    "Constant",
    "DistributedEmbedding",
    "EarlyStopping",
    "Expiry",
    "FeatureConfig",
    "Ftrl",
    "HotrowError",
    "Momentum",
    "Normal",
    "RowwiseAdagrad",
    "Schedule",
    "Staleness",
    "TableConfig",
    "Uniform",
    "__version__",
    "bind",
    "export_changes",
    "export_model",
]


_LAZY = {
    "DistributedEmbedding": "hotrow.ops.embedding",
    "EarlyStopping": "hotrow.ops.early_stopping",
    "bind": "hotrow.ops.binding",
    "export_changes": "hotrow.ops.export",
    "export_model": "hotrow.ops.export",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "ops":
        importlib.import_module("hotrow.ops.strings")
        return importlib.import_module("hotrow.ops")
    raise AttributeError(f"module 'hotrow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
