"""The tables of a layer in the files of Keras: `.weights.h5`, and `.keras` archives."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import h5py
import numpy as np

from hotrow.errors import DataLossError, UnimplementedError
from hotrow.ops.table import Table
from hotrow.ops.weights_file import read_tables, write_tables

_ASSET = "rows_in"
"""Entry of the weights file with the name of the asset that has the rows, as uint8."""


class KerasSaving:
    """Writes and reads the tables of a layer when Keras saves or loads it.

    Rows go to Keras' weights file piece by piece. Keras builds the weights file of a `.keras`
    archive in memory and copies it, so rows of an archive are in a file of their own, an asset of
    the layer: `rows-<id>.h5`.
    """

    def __init__(self, layer: str, tables: Mapping[str, Table]) -> None:
        """Writes nothing yet.

        Args:
            layer: name of the layer, for messages.
            tables: its tables by name, in order.
        """
        self._layer = layer
        self._tables = tables
        self._asset: str | None = None
        self._failure: DataLossError | None = None

    def write(self, store: Any) -> None:
        """Writes the tables to the layer's part of a weights file, or the name of their asset.

        Raises:
            UnimplementedError: the tables are split over ranks.
        """
        self._refuse_ranks("written")
        self._asset = None
        if getattr(store, "archive", None) is None:
            write_tables(self._tables.values(), store)
            return
        self._asset = f"rows-{uuid.uuid4().hex}.h5"
        store[_ASSET] = np.frombuffer(self._asset.encode(), np.uint8)

    def write_asset(self, folder: str) -> None:
        """Writes the tables to a file in the layer's folder of assets, if `write` announced it."""
        if self._asset is not None:
            with h5py.File(Path(folder, self._asset), "w") as file:
                write_tables(self._tables.values(), file)
        self._asset = None

    def read(self, store: Any) -> None:
        """Replaces the tables by those of a weights file; rows of an asset may come later.

        Raises:
            DataLossError: see `read_tables`.
            UnimplementedError: the tables are split over ranks.
        """
        self._refuse_ranks("read")
        if not store.keys() and self._failure is not None:
            # After a failure Keras calls again with an empty file, and reports the error of that
            # call.
            raise self._failure
        self._asset = None
        if _ASSET not in store.keys():  # noqa: SIM118
            self._read(store)
            return
        self._asset = np.asarray(store[_ASSET]).tobytes().decode()
        if getattr(store, "archive", None) is not None:  # `load_weights` reads no assets
            self._read_archive(store.archive, self._asset)
            self._asset = None

    def read_asset(self, folder: str | None) -> None:
        """Reads the file that `write_asset` wrote, if `read` found its name.

        Raises:
            DataLossError: there is no such file, or see `read_tables`.
        """
        name, self._asset = self._asset, None
        if name is None:
            return
        path = Path(folder or "", name)
        if folder is None or not path.is_file():
            self._fail(DataLossError(f"the rows are missing: no file {name} among the assets"))
        with h5py.File(path, "r") as file:
            self._read(file)

    def _read_archive(self, archive: Any, name: str) -> None:
        members = [m for m in archive.namelist() if PurePosixPath(m).name == name]
        with tempfile.TemporaryDirectory(prefix="hotrow-rows-") as folder:
            self.read_asset(
                str(Path(archive.extract(members[0], folder)).parent) if members else None
            )

    def _read(self, store: Any) -> None:
        try:
            read_tables(self._tables.values(), store)
        except DataLossError as err:
            self._fail(err)
        self._failure = None

    def _fail(self, err: DataLossError) -> None:
        self._failure = DataLossError(f"{self._layer}: {err}")
        raise self._failure from err

    def _refuse_ranks(self, what: str) -> None:
        size = max(table.ranks.size for table in self._tables.values())
        if size > 1:
            raise UnimplementedError(
                f"{self._layer}: tables on {size} ranks cannot be {what} by Keras; use the "
                "checkpoints of `platform train`"
            )
