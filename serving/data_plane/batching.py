"""Which versions batch their requests, and how: at the start, and again when a file changes."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from hotrow.errors import HotrowError
from hotrow.protos import control_pb2
from hotrow.serving.config.batching_parameters import read_parameters
from hotrow.serving.config.platform_config import Platform
from hotrow.serving.data_plane.data_plane import DataPlane

_LOG = logging.getLogger(__name__)

PER_MODEL_FILE = "batching_params.pbtxt"
"""In a version's directory, with --enable_per_model_batching_parameters."""


class Batching:
    """The parameters of the server, and of each version where it has its own.

    Files are read again at every poll of the file system. A file that cannot be read or is not
    legal is reported once, and the previous parameters stay.
    """

    def __init__(
        self,
        platform: Platform,
        look_seconds: float,
        data_plane: DataPlane,
    ) -> None:
        """Reads the parameters.

        Args:
            platform: names the files.
            look_seconds: time between two reads of the files; 0 or less: they are read once.
            data_plane: runs the batches.

        Raises:
            HotrowError: a file cannot be read or is not legal.
        """
        self._read = platform.batching
        self._per_model = platform.batching_by_version
        self._seconds = look_seconds
        self._data_plane = data_plane
        self._said = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if self._read is None:
            return
        self._common = self._read()
        data_plane.set_batching(self._common.threads, {})
        if self._seconds > 0 and (platform.batching_changes or self._per_model):
            self._thread = threading.Thread(target=self._run, name="batching", daemon=True)
            self._thread.start()

    def of_version(self, path: Path) -> control_pb2.Batching | None:
        """Returns the parameters of a version; None: each request runs alone.

        Raises:
            HotrowError: the version's own file is not legal.
        """
        if self._read is None:
            return None
        if not self._per_model:
            return self._common.batching
        own = path / PER_MODEL_FILE
        return read_parameters(str(own)).batching if own.is_file() else None

    def stop(self) -> None:
        """Stops reading the files."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            said = ""
            try:
                self._apply()
            except HotrowError as err:
                said = f"batching parameters are not changed: {err}"
            if said and said != self._said:
                _LOG.error(said)
            self._said = said

    def _apply(self) -> None:
        assert self._read is not None
        common = self._read()
        servables = {}
        changed = common != self._common
        self._common = common
        for number, request in self._data_plane.loaded().items():
            # A version that was loaded without batches stays so.
            wanted = self.of_version(Path(request.path))
            if request.HasField("batching") and wanted not in (None, request.batching):
                servables[number] = wanted
        if changed or servables:
            self._data_plane.set_batching(common.threads, servables)
            _LOG.info(f"batching parameters changed: {common.threads} threads")
