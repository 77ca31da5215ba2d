"""The `parallel` section: training by several processes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hotrow.config.section import Section

ShardingName = Literal["auto", "row", "column", "row_broadcast", "table", "replicated"]


class ParallelConfig(Section):
    """Training by several processes, the ranks, as if they were one.

    Attributes:
        workers: number of ranks.
        sharding: how tables are split over them, if their own settings do not tell: `row` and
            `row_broadcast` by rows, `column` by columns, `table` as a whole to one rank each,
            `replicated` not at all; `auto` chooses.
        staleness: steps that a cached row may lag behind its owner.
        timeout_seconds: how long a rank waits for the others before the run ends.
    """

    workers: int = Field(default=1, ge=1)
    sharding: ShardingName = "auto"
    staleness: int = Field(default=0, ge=0)
    timeout_seconds: float = Field(default=300.0, gt=0)
