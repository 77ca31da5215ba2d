"""The manifest of a version's tables, checked before the data plane binds them."""

from __future__ import annotations

from pathlib import Path

from hotrow.sealed_directory import read_sealed
from hotrow.version_layout import FILE_NAME, ROWS

# Where an export of ours keeps its manifest; another SavedModel has none.
MANIFEST = Path("assets", FILE_NAME)
DIGEST_BYTES = 64 << 20
"""Files up to this size are read whole and compared with their checksum before a version loads."""


def checked_manifest(version_dir: Path, store_url: str) -> str:
    """Returns the path of a version's manifest; "" for a SavedModel that has none.

    Args:
        version_dir: the SavedModel.
        store_url: where its rows are; "" means the manifest's own store.

    Raises:
        HotrowError: a file of the version is damaged.
    """
    manifest = version_dir / MANIFEST
    if not manifest.is_file():
        return ""
    # Another store may replace the version's own.
    without = ROWS if store_url else None
    read_sealed(version_dir, digest_bytes=DIGEST_BYTES, without=without)
    return str(manifest)
