"""The `parallel` section: training by several processes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hotrow.config.section import Section

ShardingName = Literal["auto", "row", "column", "row_broadcast", "table", "replicated"]


class ParallelConfig(Section):
    """Training by several processes, the ranks, with the result of one process.

    Attributes:
        workers: number of ranks.
        sharding: default sharding of tables: `row` and `row_broadcast` split by rows, `column` by
            columns, `table` gives a whole table to one rank, `replicated` does not split; `auto`
            chooses.
        staleness: updates by which a rank's replicas of others' rows may lag behind their owners,
            beside its own pending ones; 0: no replicas, and training is that of one process.
        replica_ratio: replicas of a rank, as a share of the expected rows of all tables.
        timeout_seconds: how long a rank waits for the others before the run ends.
        device_collectives: how ranks exchange keys, rows and gradients on GPUs: `nccl` from GPU to
            GPU, which needs a GPU for each rank; `host` through RAM; `auto`: NCCL where possible.
    """

    workers: int = Field(default=1, ge=1)
    sharding: ShardingName = "auto"
    staleness: int = Field(default=0, ge=0, lt=2**20)
    replica_ratio: float = Field(default=0.1, gt=0, le=1)
    timeout_seconds: float = Field(default=300.0, gt=0)
    device_collectives: Literal["auto", "nccl", "host"] = "auto"
