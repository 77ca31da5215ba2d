"""The last applied configuration, stored for the next control process."""

from __future__ import annotations

from pathlib import Path

from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig


class ConfigMemory:
    """A file in a folder that outlives the control process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "models"

    def keep(self, config: ModelServerConfig) -> None:
        """Stores a configuration; it replaces the previous one."""
        new = self._path.with_suffix(".new")
        new.write_bytes(config.SerializeToString())
        new.rename(self._path)

    def last(self) -> ModelServerConfig | None:
        """Returns the last stored configuration; None if there is none."""
        if not self._path.exists():
            return None
        return ModelServerConfig.FromString(self._path.read_bytes())
