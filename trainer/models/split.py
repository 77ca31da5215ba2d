"""How the tables of a model are split over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import hotrow
from hotrow.ops.ranks import LONE, Ranks
from hotrow.spec import Sharding


@dataclass(frozen=True)
class Split:
    """The ranks, and which of them have which rows of each table.

    Attributes:
        ranks: that train the model as one.
        shardings: of each table, by name; `row` if it is not there.
        owners: of tables whose sharding is `table`, the rank that has it.
        staleness: of rows that ranks keep of others, by table; none if it is not there.
    """

    ranks: Ranks
    shardings: Mapping[str, Sharding] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    staleness: Mapping[str, hotrow.Staleness] = field(default_factory=dict)

    def of_features(self, features: Sequence[hotrow.FeatureConfig]) -> list[hotrow.FeatureConfig]:
        """Returns features whose tables are split so."""
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
