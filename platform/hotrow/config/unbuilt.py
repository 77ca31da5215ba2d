"""Settings that are legal but not built yet: the section `online`."""

from __future__ import annotations

from collections.abc import Iterator

from hotrow.config.online import OnlineConfig
from hotrow.config.run import RunConfig
from hotrow.errors import UnimplementedError


def unbuilt_values(config: RunConfig) -> Iterator[tuple[str, object]]:
    """Yields (path, value) of each value of `config` that needs a part that is not built."""
    for key, field in OnlineConfig.model_fields.items():
        value = getattr(config.online, key)
        if value != field.default:
            yield f"online.{key}", value


def refuse_unbuilt(config: RunConfig) -> None:
    """Checks that all settings of `config` are built.

    Raises:
        UnimplementedError: for the first setting that is not; the message has its path.
    """
    for path, value in unbuilt_values(config):
        raise UnimplementedError(
            f"{path}: {value} is legal, but this part is not built yet; leave it out"
        )
