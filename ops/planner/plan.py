"""A plan: the scheme of every table, the cost of each scheme, and the reason for the choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hotrow.errors import DataLossError
from hotrow.ops.planner.volumes import SCHEMES

VERSION = 1


@dataclass(frozen=True)
class SchemeCost:
    """The cost of a scheme for a table, a training step.

    Attributes:
        average_bytes: bytes that a rank sends to others, on average.
        stages: the same by stage (keys, rows, gradients, sums); they add up to it.
        busiest_bytes: load of the busiest rank: the larger of sent and received bytes in each
            stage, summed.
        memory_bytes: memory of the rank with the most rows.
        refused: why the table cannot have this scheme; None: it can.
    """

    average_bytes: float
    stages: dict[str, float]
    busiest_bytes: float
    memory_bytes: float
    refused: str | None = None


@dataclass(frozen=True)
class TablePlan:
    """The scheme of a table.

    Attributes:
        name: the table's name. dim: D.
        scheme: one of `SCHEMES`. owner: the rank that has the table; with `table` alone.
        forced: the user chose the scheme.
        why: the reason for the choice.
        rows: expected rows for all data. lookups: those of a global batch.
        distinct: share of a rank's lookups that are distinct, d. hottest: the hottest key's share
            of the lookups. largest_share: share of the rows on the rank that owns most by key.
        costs: by scheme; the cost of `table` is with this owner, or the first rank.
    """

    name: str
    dim: int
    scheme: str
    owner: int | None
    forced: bool
    why: str
    rows: float
    lookups: float
    distinct: float
    hottest: float
    largest_share: float
    costs: dict[str, SchemeCost]

    @property
    def cost(self) -> SchemeCost:
        """The cost of the chosen scheme."""
        return self.costs[self.scheme]


@dataclass(frozen=True)
class ShardingPlan:
    """How the tables of a model are split over N ranks.

    Attributes:
        ranks: N. batch_size: samples of a global batch.
        sample_batches, sample_rows: size of the measured sample; 0: no measurement was needed.
        tables: in the order of the model.
        average_bytes, busiest_bytes: for all tables together; see `SchemeCost`.
        memory_bytes: bytes of the rows of all tables, on the rank with most.
        memory_budget_bytes: budget for these rows on a rank; None: no bound.
    """

    ranks: int
    batch_size: int
    sample_batches: int
    sample_rows: int
    tables: tuple[TablePlan, ...]
    average_bytes: float
    busiest_bytes: float
    memory_bytes: float
    memory_budget_bytes: float | None = None

    def schemes(self) -> dict[str, str]:
        """Returns the scheme of each table."""
        return {table.name: table.scheme for table in self.tables}

    def rows(self) -> dict[str, float]:
        """Returns the expected rows of each table."""
        return {table.name: table.rows for table in self.tables}

    def owners(self) -> dict[str, int]:
        """Returns the owner of each table whose scheme is `table`."""
        return {table.name: table.owner for table in self.tables if table.owner is not None}

    def to_dict(self) -> dict[str, Any]:
        """Returns JSON types; `from_dict` reads them back."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ShardingPlan:
        """Returns the plan that `to_dict` wrote.

        Raises:
            DataLossError: the values are not a plan, or one of another version.
        """
        try:
            version = values["version"]
            if version != VERSION:
                raise ValueError(f"version {version!r}; must be {VERSION}")
            rest = {key: value for key, value in values.items() if key != "version"}
            return cls(**{**rest, "tables": tuple(_table(table) for table in values["tables"])})
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise DataLossError(f"no sharding plan: {err}") from err


def _table(values: Mapping[str, Any]) -> TablePlan:
    costs = {scheme: SchemeCost(**cost) for scheme, cost in values["costs"].items()}
    table = TablePlan(**{**values, "costs": costs})
    if table.scheme not in costs or not costs.keys() <= set(SCHEMES):
        raise ValueError(f"table {table.name!r} has scheme {table.scheme!r} of {list(costs)}")
    return table
