"""--model_config_file: read at the start, and again every period."""

from __future__ import annotations

import logging
import os
import threading

from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from hotrow.errors import HotrowError
from hotrow.serving.config.model_config import single_model
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.text_proto import read_text_proto

_LOG = logging.getLogger(__name__)


def initial_config(options: ServeOptions) -> ModelServerConfig:
    """Returns the configuration to start with: the file's, or that of the one model of the flags.

    Raises:
        HotrowError: the file cannot be read or is no ModelServerConfig.
    """
    if options.model_config_file:
        return read_text_proto(options.model_config_file, ModelServerConfig())
    base_path = options.model_base_path
    if "://" not in base_path:
        base_path = os.path.abspath(os.path.expanduser(base_path))
    return single_model(options.model_name, base_path)


class ConfigFilePolling:
    """Applies the file every period, changed or not, in a thread of its own.

    A file that cannot be read or applied is reported, and the served models stay. A repeated report
    is logged only once.
    """

    def __init__(self, options: ServeOptions, models: ServedModels) -> None:
        """Starts the thread, if the options set a period."""
        self._path = options.model_config_file
        self._seconds = options.model_config_file_poll_wait_seconds
        self._models = models
        self._said = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if self._path and self._seconds > 0:
            self._thread = threading.Thread(target=self._run, name="config-file", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            lines: list[str] = []
            try:
                config = read_text_proto(self._path, ModelServerConfig(), lines.append)
            except HotrowError as err:
                lines.append(f"Failed to read ModelServerConfig file: {err}")
            else:
                try:
                    self._models.apply(config)
                except HotrowError as err:
                    lines.append(f"PollFilesystemAndReloadConfig failed to ReloadConfig: {err}")
            said = "\n".join(lines)
            if said and said != self._said:
                _LOG.error(said)
            self._said = said
