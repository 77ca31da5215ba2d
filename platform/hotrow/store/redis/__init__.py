"""Rows in Redis: alone, behind Sentinel, or a cluster (docs/formats.md, "In Redis")."""
