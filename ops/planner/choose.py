"""Chooses a scheme for every table: least bytes at the busiest rank, within a rank's memory.

N ranks. A rank's load is the `Volume.load` of all tables together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from hotrow.ops.planner.facts import TableFacts
from hotrow.ops.planner.options import AUTO, Choice, Floats, Option
from hotrow.ops.planner.plan import ShardingPlan
from hotrow.ops.planner.volumes import SCHEMES, Volume
from hotrow.spec import TableConfig
from hotrow.spec.checks import require, require_one_of

_WORTH = 0.02
"""Share of the busiest rank's load that a change must save; samples differ by about as much."""
_WORTH_MORE = 0.05
"""The same of what begins with other schemes: `row` spreads memory and work, too."""
_ROUNDS = 4


def plan_sharding(
    tables: Sequence[TableConfig],
    facts: Mapping[str, TableFacts],
    *,
    ranks: int,
    batch_size: int,
    forced: Mapping[str, str] | None = None,
    schemes: Collection[str] = SCHEMES,
    memory_budget_bytes: float | None = None,
    sample_batches: int = 0,
    sample_rows: int = 0,
) -> ShardingPlan:
    """Returns a plan.

    The planner minimises the load of the rank that is busiest with all tables together. It tries
    three starting points in order: each table with the scheme of the least average traffic, `row`
    before `table`; each table with its best scheme if it were alone; and again the least average
    traffic, `table` before `row`. Tables with the most traffic get their `table` owners first, each
    on the rank where this keeps the load least. From there tables change schemes or owners while
    one change saves 2 % or more. A later starting point must end 5 % better than an earlier one.
    While a rank needs more memory than the budget, tables change to schemes that save memory, in
    order of the least cost for the memory saved. First come changes that lower the memory of the
    fullest rank. Where no single one does, as with large whole tables at several owners, all tables
    that cannot stay as they are get the scheme of least memory.

    Args:
        tables: the model's tables.
        facts: the facts of each table.
        ranks: N, as in the facts.
        batch_size: samples of a global batch.
        forced: schemes of tables that the user chose; `auto` leaves the choice to the planner.
        schemes: schemes to choose from where none is forced.
        memory_budget_bytes: budget for rows on a rank; a plan that exceeds it reports so.
        sample_batches: number of measured batches.
        sample_rows: number of measured samples.

    Raises:
        InvalidArgumentError: a forced scheme is unknown, names an unknown table, or is not
            possible.
    """
    forced = dict(forced or {})
    names = {table.name for table in tables}
    for name, scheme in forced.items():
        require(name in names, "a table with forced sharding", name, f"one of {sorted(names)}")
        require_one_of(f"table {name!r}: sharding", scheme, (AUTO, *SCHEMES))
    choices = [Choice(t, facts[t.name], forced.get(t.name, AUTO), schemes) for t in tables]
    _choose(choices, ranks)
    before = [choice.chosen for choice in choices]
    if memory_budget_bytes is not None:
        _save_memory(choices, ranks, memory_budget_bytes)
    moved, memory = _total(choices, ranks)
    return ShardingPlan(
        ranks=ranks,
        batch_size=batch_size,
        sample_batches=sample_batches,
        sample_rows=sample_rows,
        tables=tuple(
            choice.as_plan(saves_memory=choice.chosen is not earlier)
            for choice, earlier in zip(choices, before, strict=True)
        ),
        average_bytes=moved.average,
        busiest_bytes=moved.busiest,
        memory_bytes=float(memory.max()),
        memory_budget_bytes=memory_budget_bytes,
    )


def _choose(choices: Sequence[Choice], ranks: int) -> None:
    starts: tuple[Callable[[Choice], Option], ...] = (
        lambda choice: min(choice.options, key=lambda option: _average(option, "table")),
        lambda choice: choice.alone,
        lambda choice: min(choice.options, key=lambda option: _average(option, "row")),
    )
    best: list[Option] = []
    least = np.inf
    for start in starts:
        for choice in choices:
            choice.chosen = start(choice)
        _give_owners(choices, ranks)
        _balance(choices, ranks)
        busiest = _total(choices, ranks)[0].busiest
        if not best or busiest < (1 - _WORTH_MORE) * least:
            best, least = [choice.chosen for choice in choices], busiest
    for choice, option in zip(choices, best, strict=True):
        choice.chosen = option


def _average(option: Option, but: str) -> float:
    """Returns a rank's average bytes sent, plus 10 % for schemes that must not win by chance.

    On average `row` and `table` move equally many rows.
    """
    return option.cost.average_bytes * (1.1 if option.scheme == but else 1.0)


def _total(choices: Sequence[Choice], ranks: int) -> tuple[Volume, Floats]:
    """Returns the bytes of all tables, and their memory on each rank, [N]."""
    moved, memory = Volume.nothing(ranks), np.zeros(ranks)
    for choice in choices:
        moved += choice.chosen.moved
        memory += choice.chosen.memory
    return moved, memory


def _largest_first(choices: Sequence[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda choice: -choice.chosen.cost.busiest_bytes)


def _give_owners(choices: Sequence[Choice], ranks: int) -> None:
    """Gives each table with scheme `table` to the rank that keeps the busiest load least."""
    moved, memory = _total([c for c in choices if c.chosen.scheme != "table"], ranks)
    for choice in _largest_first([c for c in choices if c.chosen.scheme == "table"]):
        options = [option for option in choice.options if option.scheme == "table"]
        choice.chosen = _least(options, moved, memory)
        moved, memory = moved + choice.chosen.moved, memory + choice.chosen.memory


def _least(options: Sequence[Option], moved: Volume, memory: Floats) -> Option:
    """Returns the option with the least load of the busiest rank, given all other tables."""
    return min(
        options,
        key=lambda o: ((moved + o.moved).busiest, float((memory + o.memory).max()), o.order),
    )


def _balance(choices: Sequence[Choice], ranks: int) -> None:
    """Changes schemes and owners while this lowers the load of the busiest rank."""
    moved, memory = _total(choices, ranks)
    for _ in range(_ROUNDS):
        changed = False
        for choice in _largest_first(choices):
            others, memory_of_others = moved - choice.chosen.moved, memory - choice.chosen.memory
            best = _least(choice.options, others, memory_of_others)
            least = max(_WORTH * moved.busiest, 1.0)
            if moved.busiest - (others + best.moved).busiest < least:
                continue
            choice.chosen, changed = best, True
            moved, memory = others + best.moved, memory_of_others + best.memory
        if not changed:
            return


def _save_memory(choices: Sequence[Choice], ranks: int, budget_bytes: float) -> None:
    """Changes schemes and owners while the rank with the most memory exceeds the budget."""
    moved, memory = _total(choices, ranks)
    while memory.max() > budget_bytes:
        moves: list[tuple[float, int, Choice, Option]] = []
        for choice in choices:
            for option in choice.options:
                saved = memory.max() - (memory - choice.chosen.memory + option.memory).max()
                if saved < 1:
                    continue
                more = (moved - choice.chosen.moved + option.moved).busiest - moved.busiest
                moves.append((more / saved, len(moves), choice, option))
        if not moves:
            _spread(choices, ranks, budget_bytes)
            return
        _, _, choice, option = min(moves)
        choice.chosen = option
        moved, memory = _total(choices, ranks)


def _spread(choices: Sequence[Choice], ranks: int, budget_bytes: float) -> None:
    """Gives each table its scheme of least memory, if the fullest rank has less with all of them.

    Then tables go back to the schemes that they had, as far as the budget allows.
    """
    before = [choice.chosen for choice in choices]
    most = _total(choices, ranks)[1].max()
    for choice in choices:
        choice.chosen = min(choice.options, key=lambda o: (float(o.memory.max()), o.order))
    if _total(choices, ranks)[1].max() >= most:
        budget_bytes = np.inf
    for choice, earlier in zip(choices, before, strict=True):
        smallest, choice.chosen = choice.chosen, earlier
        if _total(choices, ranks)[1].max() > budget_bytes:
            choice.chosen = smallest
