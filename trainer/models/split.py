"""How the tables of a model are split over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import hotrow
from hotrow.ops.ranks import LONE, Ranks
from hotrow.spec import Sharding


@dataclass(frozen=True)
class Split:
    """The ranks, and the sharding of each table over them.

    Attributes:
        ranks: the ranks that train the model together.
        shardings: sharding of each table, by name; `row` for a missing table.
        owners: the rank that has the table, for tables with sharding `table`.
        staleness: staleness of the replicas of each table; a missing table has none.
    """

    ranks: Ranks
    shardings: Mapping[str, Sharding] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    staleness: Mapping[str, hotrow.Staleness] = field(default_factory=dict)

    def of_features(self, features: Sequence[hotrow.FeatureConfig]) -> list[hotrow.FeatureConfig]:
        """Returns the features with this split set on their tables."""
        return [replace(feature, table=self._of_table(feature.table)) for feature in features]

    def _of_table(self, table: hotrow.TableConfig) -> hotrow.TableConfig:
        sharding = self.shardings.get(table.name, "row")
        return replace(
            table,
            sharding=sharding,
            owner=self.owners.get(table.name),
            staleness=self.staleness.get(table.name),
        )


ALONE = Split(LONE)
"""One process has all rows."""
