"""Stores of exported rows: one contract over LMDB and Redis (design D8, D12, 0007)."""

from __future__ import annotations

from hotrow.store.opening import open_store

__all__ = ["open_store"]
