"""The paths of Hotrow's own files beside the SavedModel of an exported version."""

from __future__ import annotations

FILE_NAME = "hotrow_manifest.json"
"""The manifest, in the folder `assets`."""
HOT_ROWS = "hot_rows.bin"
"""The most used keys, for a server's cache."""
ROWS = "rows"
"""Folder of a version's own store."""
