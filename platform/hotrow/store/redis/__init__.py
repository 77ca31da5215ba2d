"""Rows in Redis: standalone, with Sentinel, or a cluster (docs/formats.md, "In Redis")."""
