"""Where an exported version keeps what is ours beside its SavedModel."""

from __future__ import annotations

FILE_NAME = "hotrow_manifest.json"
"""The manifest, in the folder `assets`."""
HOT_ROWS = "hot_rows.bin"
"""The most used keys, for a server's cache."""
ROWS = "rows"
"""Folder of a version's own store."""
