"""Stores of exported rows: one contract over LMDB and Redis (docs/design/0007-stores.md).

`open_store` is imported on first use. A process that needs only a store's URL or access, such as
the supervisor of `platform serve`, does not import numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotrow.store.opening import open_store

__all__ = ["open_store"]


def __getattr__(name: str) -> Any:
    if name != "open_store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hotrow.store.opening import open_store

    return open_store
