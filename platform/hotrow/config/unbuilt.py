"""Sections that are legal but whose parts are not built yet: `parallel`, `online`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hotrow.config.section import Section
from hotrow.errors import UnimplementedError

if TYPE_CHECKING:
    from hotrow.config.run import RunConfig


class ParallelConfig(Section):
    """Training by several processes.

    Attributes:
        workers: number of ranks.
        sharding: how tables are split over them (`reference` OneFlow's schemes A, B and C).
        staleness: steps that a cached row may lag behind its owner.
    """

    workers: int = Field(default=1, ge=1)
    sharding: Literal["auto", "column", "row", "exchange"] = "auto"
    staleness: int = Field(default=0, ge=0)


class OnlineConfig(Section):
    """Publishing updates to running servers.

    Attributes:
        source: where examples come from; None: no online training.
        publish_seconds: time between two published cuts.
    """

    source: str | None = Field(default=None, min_length=1)
    publish_seconds: float = Field(default=1.0, gt=0)


def unbuilt_values(config: RunConfig) -> Iterator[tuple[str, object]]:
    """Yields (path, value) of each value of `config` that needs a part that is not built."""
    for name in ("parallel", "online"):
        section: Section = getattr(config, name)
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if value != field.default:
                yield f"{name}.{key}", value


def refuse_unbuilt(config: RunConfig) -> None:
    """Checks that everything `config` asks for is built.

    Raises:
        UnimplementedError: for the first value that is not; the message has its path.
    """
    for path, value in unbuilt_values(config):
        raise UnimplementedError(
            f"{path}: {value} is legal, but this part is not built yet; leave it out"
        )
