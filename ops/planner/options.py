"""The possible schemes of a table, and the cost of each for every rank. N ranks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.errors import InvalidArgumentError
from hotrow.ops.planner.facts import TableFacts
from hotrow.ops.planner.memory import memory_bytes
from hotrow.ops.planner.plan import SchemeCost, TablePlan
from hotrow.ops.planner.volumes import SCHEMES, Volume, volume
from hotrow.spec import RowwiseAdagrad, TableConfig

Floats = npt.NDArray[np.float64]

AUTO = "auto"


@dataclass(frozen=True, eq=False)
class Option:
    """A scheme of a table, with an owner if it is `table`.

    Attributes:
        moved: bytes that the steps send.
        memory: bytes of rows on each rank, float64 [N].
        cost: a summary of both.
    """

    scheme: str
    owner: int | None
    moved: Volume
    memory: Floats
    cost: SchemeCost

    @property
    def order(self) -> tuple[float, float, float, int]:
        """Sort key of the table alone; the smallest is the best."""
        cost = self.cost
        place = SCHEMES.index(self.scheme)
        return cost.busiest_bytes, cost.average_bytes, cost.memory_bytes, place


class Choice:
    """A table with its possible schemes and the chosen one.

    Attributes:
        options: the schemes that the table supports and the user allows; one or more.
        alone: the best of them if there were no other table.
        chosen: one of them.
    """

    def __init__(
        self, table: TableConfig, facts: TableFacts, forced: str, schemes: Collection[str]
    ) -> None:
        """Starts with the best option.

        Args:
            table: the table.
            facts: its facts.
            forced: the scheme that the user chose, or `AUTO`.
            schemes: schemes to choose from for `AUTO`.

        Raises:
            InvalidArgumentError: the table does not support that scheme.
        """
        self.table, self.facts, self.forced = table, facts, forced
        self._every = [
            _option(scheme, owner, table, facts)
            for scheme in SCHEMES
            for owner in (range(facts.ranks) if scheme == "table" else (None,))
        ]
        wanted = schemes if forced == AUTO else (forced,)
        allowed = [option for option in self._every if option.scheme in wanted]
        self.options = [option for option in allowed if option.cost.refused is None]
        if not self.options:
            raise InvalidArgumentError(
                f"table {table.name!r}: sharding {forced!r}: {allowed[0].cost.refused}; choose one "
                f"of {', '.join(s for s in SCHEMES if s != forced)}"
            )
        self.alone = self.chosen = min(self.options, key=lambda option: option.order)

    def as_plan(self, saves_memory: bool) -> TablePlan:
        """Returns the chosen scheme, and the reason for it.

        Args:
            saves_memory: whether it was chosen to save memory.
        """
        facts = self.facts
        costs = {option.scheme: option.cost for option in reversed(self._every)}
        costs[self.chosen.scheme] = self.chosen.cost
        return TablePlan(
            name=self.table.name,
            dim=self.table.embedding_dim,
            scheme=self.chosen.scheme,
            owner=self.chosen.owner,
            forced=self.forced != AUTO,
            why=self._why(saves_memory),
            rows=facts.rows,
            lookups=float(facts.lookups.sum(axis=1).mean()),
            distinct=facts.dedup,
            hottest=facts.hottest,
            largest_share=facts.largest_share,
            costs={scheme: costs[scheme] for scheme in SCHEMES},
        )

    def _why(self, saves_memory: bool) -> str:
        if self.forced != AUTO:
            return "forced"
        if saves_memory:
            return "saves memory"
        if self.chosen.scheme != self.alone.scheme:
            return "least bytes with the other tables"
        least = self.chosen.cost.busiest_bytes
        if not least:
            return "nothing to send"
        others = [o for o in self.options if o.scheme not in (self.chosen.scheme, "table")]
        if not others:
            return "least bytes"
        next_best = min(others, key=lambda option: option.order)
        return f"least bytes; {next_best.scheme} {next_best.cost.busiest_bytes / least:.3g} x"


def _option(scheme: str, owner: int | None, table: TableConfig, facts: TableFacts) -> Option:
    moved = volume(scheme, facts, table.embedding_dim, owner or 0, _whole_row_sums(table))
    memory = memory_bytes(scheme, table, facts, owner or 0)
    refused = None
    if scheme == "column" and table.embedding_dim < facts.ranks:
        refused = f"{table.embedding_dim} columns are fewer than {facts.ranks} ranks"
    cost = SchemeCost(
        average_bytes=moved.average,
        stages=moved.stages,
        busiest_bytes=moved.busiest,
        memory_bytes=float(memory.max()),
        refused=refused,
    )
    return Option(scheme, owner, moved, memory, cost)


def _whole_row_sums(table: TableConfig) -> int:
    """Returns how many numbers a row the optimizer computes from all of a row's columns."""
    clips = table.optimizer.clip_row_norm is not None
    return int(clips) + int(isinstance(table.optimizer, RowwiseAdagrad))
