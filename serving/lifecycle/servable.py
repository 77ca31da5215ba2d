"""One loaded version of a model: any SavedModel, of TensorFlow 1 or 2, ours or not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2

from hotrow.errors import NotFoundError
from hotrow.protos import control_pb2
from hotrow.serving.config.row_options import RowOptions
from hotrow.serving.config.session_config import SessionOptions
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.lifecycle.lookup import checked_manifest
from hotrow.serving.updates.cut_counts import CutCounts
from hotrow.serving.updates.double_buffer import DoubleBuffer
from hotrow.serving.updates.version_rows import VersionRows
from hotrow.serving.wire.status import RequestError

if TYPE_CHECKING:
    from hotrow.serving.updates.cut_follower import CutFollower

# Behind the model's name in the name of the session of the second buffer, of which no name of
# another model can be a part: kernels find their tables by it, and those of the second one may
# have other cuts over them.
_SECOND = "\x01second"


class Servable:
    """A version in the data plane until it is closed.

    Attributes:
        model: its name.
        version: its number.
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
        batching: control_pb2.Batching | None,
        warm_up: control_pb2.WarmUp,
        lost: Callable[[RequestError], None],
        publish: Callable[[], None],
        counts: CutCounts,
    ) -> None:
        """Loads it, with the tables of its manifest if it has one.

        Args:
            data_plane: where.
            model: its name.
            version: its number.
            path: of the SavedModel.
            options: of its session.
            rows: how its rows are read, if it has some.
            batching: how its requests run together; None: each has a run of its own.
            warm_up: what it answers before it is returned.
            lost: called once, when the data plane was started again and could not load it, or its
                second session, once more.
            publish: makes requests go to `number`, which is another one from now on.
            counts: of cuts.

        Raises:
            NotFoundError: `path` holds no SavedModel.
            HotrowError: it cannot be loaded or its store cannot be opened.
        """
        self._data_plane = data_plane
        self.model = model
        self.version = version
        self._warm_up = warm_up
        self._lost = lost
        self._is_lost = threading.Lock()  # taken for good by the first who says so
        if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
            raise NotFoundError(
                f"{path} holds no SavedModel: it has no saved_model.pb; "
                "export the model again, or remove the directory"
            )
        manifest = checked_manifest(path, rows.store)
        before = data_plane.rows_before(model, version, str(path), rows.store)
        self._rows = VersionRows(manifest, rows, before, data_plane.folder)
        self._cuts: CutFollower | None = None
        self._buffer: DoubleBuffer | None = None
        self.signatures: Mapping[str, Any]
        request = control_pb2.LoadRequest(
            model=model,
            version=version,
            path=str(path),
            tags=options.tags,
            session=model,
            session_config=_config(options.config, model, version),
            manifest=manifest,
            store=rows.store,
            batching=batching,
            warm_up=warm_up,
            rows=self._rows.message,
        )
        try:
            if self._rows.are_shared:
                # Not before: a server without such a store does without its libraries.
                from hotrow.serving.updates.cut_follower import CutFollower

                self._cuts = CutFollower(model, version, self._rows, data_plane, counts)
            found = data_plane.adopt(request, self._lose)
            if found is not None:
                numbers, routed = [load.servable for load in found.loads], found.routed
                self.signatures = found.signatures
            else:
                if self._cuts is not None:
                    request.shown.CopyFrom(self._cuts.newest())
                routed, self.signatures = data_plane.load(request, self._lose)
                numbers = [routed]
            self._buffer = DoubleBuffer(data_plane, numbers, routed, self._load_second, publish)
            self._rows.watch(lambda topology: data_plane.set_topology(numbers[0], topology))
            if self._cuts is not None:
                self._cuts.follow(self._buffer)
        except BaseException:
            self.close()
            raise

    @property
    def number(self) -> int:
        """Of the servable in the data plane that answers now."""
        assert self._buffer is not None  # it is loaded
        return self._buffer.routed

    def close(self) -> None:
        """Frees it when its last request has ended; no route may lead to it."""
        with contextlib.ExitStack() as stack:  # the last one first, each whatever others raise
            if self._cuts is not None:
                stack.callback(self._cuts.delete_files)
            stack.callback(self._rows.close)
            if self._buffer is not None:
                stack.callback(self._buffer.close)
            if self._cuts is not None:
                stack.callback(self._cuts.end)

    def _load_second(self, first: int, shown: control_pb2.ShownCut) -> int:
        """Returns the session that takes turns with the first one, which shows this or another."""
        found = self._data_plane.adopt_second(first, self._lose)
        if found is not None:
            return found
        request = control_pb2.LoadRequest()
        request.CopyFrom(self._data_plane.kept(first))
        config = config_pb2.ConfigProto.FromString(request.session_config)
        request.session = self.model + _SECOND
        request.session_config = _config(config, request.session, self.version)
        request.shares = first
        request.shown.CopyFrom(shown)
        request.warm_up.CopyFrom(self._warm_up)
        # Once: who has no memory for it ends by it each time.
        return self._data_plane.load_once(request, self._lose)

    def _lose(self, error: RequestError) -> None:
        if self._is_lost.acquire(blocking=False):
            self._lost(error)


def _config(options: config_pb2.ConfigProto, name: str, version: int) -> bytes:
    """Returns the configuration of a session whose kernels find the version's tables by it."""
    config = config_pb2.ConfigProto()
    config.CopyFrom(options)
    config.experimental.session_metadata.name = name
    config.experimental.session_metadata.version = version
    return bytes(config.SerializeToString())
