"""One loaded version of a model: any SavedModel, of TensorFlow 1 or 2, ours or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import config_pb2

from hotrow.errors import NotFoundError
from hotrow.protos import control_pb2
from hotrow.serving.data_plane import DataPlane
from hotrow.serving.lookup import checked_manifest
from hotrow.serving.row_options import RowOptions
from hotrow.serving.status import RequestError
from hotrow.serving.version_rows import VersionRows


@dataclass(frozen=True)
class SessionOptions:
    """How a session is made: the tags of its graph and its configuration."""

    tags: tuple[str, ...]
    config: config_pb2.ConfigProto


class Servable:
    """A version in the data plane until it is closed.

    Attributes:
        model: its name.
        version: its number.
        number: of the servable in the data plane.
        signatures: SignatureDefs by name.
    """

    def __init__(
        self,
        data_plane: DataPlane,
        model: str,
        version: int,
        path: Path,
        options: SessionOptions,
        rows: RowOptions,
        log: Callable[[str], None],
        batching: control_pb2.Batching | None,
        warm_up: control_pb2.WarmUp,
        lost: Callable[[RequestError], None],
    ) -> None:
        """Loads it, with the tables of its manifest if it has one.

        Args:
            data_plane: where.
            model: its name.
            version: its number.
            path: of the SavedModel.
            options: of its session.
            rows: how its rows are read, if it has some.
            log: takes a line for each change an operator cares for.
            batching: how its requests run together; None: each has a run of its own.
            warm_up: what it answers before it is returned.
            lost: called when the data plane was started again and could not load it once more.

        Raises:
            NotFoundError: `path` holds no SavedModel.
            HotrowError: it cannot be loaded or its store cannot be opened.
        """
        self._data_plane = data_plane
        self.model = model
        self.version = version
        if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
            raise NotFoundError(
                f"{path} holds no SavedModel: it has no saved_model.pb; "
                "export the model again, or remove the directory"
            )
        config = config_pb2.ConfigProto()
        config.CopyFrom(options.config)
        # Kernels see it: our lookups find the version's tables by it.
        config.experimental.session_metadata.name = model
        config.experimental.session_metadata.version = version
        manifest = checked_manifest(path, rows.store)
        before = data_plane.rows_before(model, version, str(path), rows.store)
        self._rows = VersionRows(manifest, rows, before, data_plane.folder, log)
        self.number: int
        self.signatures: Mapping[str, Any]
        try:
            self.number, self.signatures = data_plane.load(
                lost,
                model=model,
                version=version,
                path=str(path),
                tags=options.tags,
                session_config=config.SerializeToString(),
                manifest=manifest,
                store=rows.store,
                batching=batching,
                warm_up=warm_up,
                rows=self._rows.message,
            )
        except BaseException:
            self._rows.close()
            raise
        try:
            self._rows.watch(lambda topology: data_plane.set_topology(self.number, topology))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees it when its last request has ended; no route may lead to it."""
        self._data_plane.unload(self.number)
        self._rows.close()
