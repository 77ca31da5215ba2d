"""The section `online`."""

from __future__ import annotations

from pydantic import Field

from hotrow.config.section import Section


class OnlineConfig(Section):
    """Publishing updates to running servers.

    Attributes:
        source: source of the examples; None: no online training.
        publish_seconds: time between two published cuts.
    """

    source: str | None = Field(default=None, min_length=1)
    publish_seconds: float = Field(default=1.0, gt=0)
