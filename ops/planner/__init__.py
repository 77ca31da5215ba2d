"""The planner: measures a sample of the data, computes each scheme's traffic, and chooses.

It needs only numpy.
"""

from __future__ import annotations

from hotrow.ops.planner.batch_facts import FeatureKeys
from hotrow.ops.planner.choose import plan_sharding
from hotrow.ops.planner.facts import TableFacts
from hotrow.ops.planner.plan import SchemeCost, ShardingPlan, TablePlan
from hotrow.ops.planner.plan_text import describe_plan
from hotrow.ops.planner.sample import Sample
from hotrow.ops.planner.volumes import SCHEMES, STAGES, Volume, volume

__all__ = [
    "SCHEMES",
    "STAGES",
    "FeatureKeys",
    "Sample",
    "SchemeCost",
    "ShardingPlan",
    "TableFacts",
    "TablePlan",
    "Volume",
    "describe_plan",
    "plan_sharding",
    "volume",
]
