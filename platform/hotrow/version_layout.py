"""Where an exported version keeps what is ours beside its SavedModel (design D9)."""

from __future__ import annotations

FILE_NAME = "hotrow_manifest.json"
"""The manifest, in the folder `assets`."""
ROWS = "rows"
"""Folder of a version's own store."""
