"""Binding of a version's tables: its manifest and a store, to the lookup ops of its graph."""

from __future__ import annotations

from pathlib import Path

from hotrow import _native
from hotrow.manifest import FILE_NAME, ROWS
from hotrow.ops import library
from hotrow.sealed_directory import read_sealed

# Where an export of ours keeps its manifest (design D9); another SavedModel has none.
MANIFEST = Path("assets", FILE_NAME)
DIGEST_BYTES = 64 << 20
"""Files up to this size are read whole and compared with their checksum before a version loads."""


class LookupBinding:
    """The tables of one version, bound in the process until `release`.

    A SavedModel without a manifest binds nothing, and does not load the op library.
    """

    def __init__(self, model: str, version: int, version_dir: Path, store_url: str) -> None:
        """Binds the tables, before the version's session is made.

        Args:
            model: name that the session's metadata carries.
            version: number that the session's metadata carries.
            version_dir: the SavedModel.
            store_url: where its rows are; "" means the manifest's own store.

        Raises:
            FailedPreconditionError: the op library is not built.
            HotrowError: a file of the version is damaged or the store cannot be opened.
        """
        self._bound: tuple[str, int] | None = None
        manifest = version_dir / MANIFEST
        if not manifest.is_file():
            return
        # Another store may have taken the place of the version's own.
        without = ROWS if store_url else None
        read_sealed(version_dir, digest_bytes=DIGEST_BYTES, without=without)
        library.load()
        _native.bind_serving(model, version, str(manifest), store_url)
        self._bound = (model, version)

    def release(self) -> None:
        """Unbinds the tables, after the version's session was closed. A second call is harmless."""
        if self._bound is None:
            return
        model, version = self._bound
        self._bound = None
        _native.unbind_serving(model, version)
