"""Hotrow: train recommender models with embedding tables of any size, serve them, keep learning.

Importing this package does not import TensorFlow; `DistributedEmbedding`, `bind`, `export_model`
and `export_changes` do, when they are first asked for.
"""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    if name == "DistributedEmbedding":
        from hotrow.ops.embedding import DistributedEmbedding

        return DistributedEmbedding
    if name == "bind":
        from hotrow.ops.binding import bind

        return bind
    if name in ("export_changes", "export_model"):
        from hotrow.ops import export

        return getattr(export, name)
    raise AttributeError(f"module 'hotrow' has no attribute {name!r}")
