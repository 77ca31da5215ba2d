"""One loaded version of a model: any SavedModel, of TensorFlow 1 or 2, ours or not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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

# The second session's name is the model's name and this suffix, which no model's name contains.
# Kernels find their tables by the session's name, and the second session may have other cuts over
# them.
_SECOND = "\x01second"


class Servable:
    """A version in the data plane until it is closed.

    Attributes:
        model: its name.
        version: its number.
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
            data_plane: loads it.
            model: its name.
            version: its number.
            path: of the SavedModel.
            options: of its sessions.
            rows: how its rows are read, if it has some.
            batching: how its requests run together; None: each runs alone.
            warm_up: requests that it answers before it is returned.
            lost: called once, when the restarted data plane could not load it or its second session
                again.
            publish: routes requests to `number` after it has changed.
            counts: metrics of cuts.

        Raises:
            NotFoundError: `path` holds no SavedModel.
            HotrowError: it cannot be loaded or its store cannot be opened.
        """
        self._data_plane = data_plane
        self.model = model
        self.version = version
        self._warm_up = warm_up
        self._lost = lost
        self._is_lost = threading.Lock()  # the first call of `_lose` keeps it
        if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
            raise NotFoundError(
                f"{path} holds no SavedModel: it has no saved_model.pb; "
                "export the model again, or remove the directory"
            )
        manifest = checked_manifest(path, rows.store)
        before = data_plane.rows_before(model, version, str(path), rows.store)
        self._rows = VersionRows(model, manifest, rows, before)
        self._cuts: CutFollower | None = None
        self._buffer: DoubleBuffer | None = None
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
                # Imported only here: a server without such a store does not need its libraries.
                from hotrow.serving.updates.cut_follower import CutFollower

                self._cuts = CutFollower(model, version, self._rows, data_plane, counts)
            found = data_plane.adopt(request, self._lose)
            if found is not None:
                numbers, routed = [load.servable for load in found.loads], found.routed
            else:
                if self._cuts is not None:
                    request.shown.CopyFrom(self._cuts.newest())
                routed = data_plane.load(request, self._lose)
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
        """Number of the servable in the data plane that answers now."""
        assert self._buffer is not None  # it is loaded
        return self._buffer.routed

    def close(self) -> None:
        """Frees it when its last request has ended; no route may lead to it."""
        with contextlib.ExitStack() as stack:  # in reverse order; an error stops none
            if self._cuts is not None:
                stack.callback(self._cuts.delete_files)
            stack.callback(self._rows.close)
            if self._buffer is not None:
                stack.callback(self._buffer.close)
            if self._cuts is not None:
                stack.callback(self._cuts.end)

    def _load_second(self, first: int, shown: control_pb2.ShownCut) -> int:
        """Returns the second session; a new one shows this cut, one taken over shows its own."""
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
        # Only one attempt: without enough memory, each one would end the process.
        return self._data_plane.load_once(request, self._lose)

    def _lose(self, error: RequestError) -> None:
        if self._is_lost.acquire(blocking=False):
            self._lost(error)


def _config(options: config_pb2.ConfigProto, name: str, version: int) -> bytes:
    """Returns the configuration of a session; kernels find the version's tables by its name."""
    config = config_pb2.ConfigProto()
    config.CopyFrom(options)
    config.experimental.session_metadata.name = name
    config.experimental.session_metadata.version = version
    return bytes(config.SerializeToString())
