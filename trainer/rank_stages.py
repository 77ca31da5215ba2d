"""Bytes that ranks sent to each other, and the time spent, by stage."""

from __future__ import annotations

from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import gathered
from hotrow.trainer.table_metrics import Metrics


def stages_of_all(ranks: Ranks) -> dict[str, Metrics]:
    """Returns metrics by stage, over all ranks since the process began. A collective.

    `calls` of one rank, `bytes` that all ranks together sent to others, mean `seconds` of a rank,
    and `seconds_of_slowest`. Empty for a process without ranks.
    """
    own = {
        stage: [counts["calls"], counts["bytes_sent"], counts["nanoseconds"]]
        for stage, counts in ranks.stage_counts().items()
    }
    of_all = gathered(ranks, "metrics of stages", own)
    stages: dict[str, Metrics] = {}
    for stage in of_all[0]:
        calls, sent, nanoseconds = zip(*(one.get(stage, (0, 0, 0)) for one in of_all), strict=True)
        stages[stage] = {
            "calls": max(calls),
            "bytes": sum(sent),
            "seconds": sum(nanoseconds) / ranks.size / 1e9,
            "seconds_of_slowest": max(nanoseconds) / 1e9,
        }
    return stages
