"""Stores of exported rows: one contract over LMDB and Redis (design D8, D12, 0007)."""
