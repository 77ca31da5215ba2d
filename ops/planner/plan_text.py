"""A plan as lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from hotrow.ops.planner.plan import ShardingPlan, TablePlan
from hotrow.ops.planner.volumes import SCHEMES

_UNITS = ("B", "kB", "MB", "GB", "TB")
_LEFT = 1  # columns that are aligned to the left at the beginning; the last two are, too


def describe_plan(plan: ShardingPlan) -> str:
    """Returns the plan as text: one line a table, and the totals."""
    titles = ["table", "D", "rows", "lookups", "distinct", "hottest"]
    titles += [*SCHEMES, "memory", "scheme", "why"]
    lines = [titles, *(_cells(table) for table in plan.tables)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    text = [
        f"sharding of {len(plan.tables)} tables over {plan.ranks} ranks, batches of "
        f"{plan.batch_size:,}; measured on {plan.sample_batches}, {plan.sample_rows:,} rows",
        "bytes a step at the busiest rank by scheme; memory of rows at the fullest rank",
        *(_aligned(line, widths) for line in lines),
        f"together: {bytes_text(plan.average_bytes)} a step and rank sent, "
        f"{bytes_text(plan.busiest_bytes)} at the busiest; {bytes_text(plan.memory_bytes)} of rows "
        f"at the fullest rank{_of_budget(plan)}",
    ]
    budget = plan.memory_budget_bytes
    if budget is not None and plan.memory_bytes > budget:
        text.append(_over_budget(plan, budget))
    return "\n".join(text)


def _of_budget(plan: ShardingPlan) -> str:
    budget = plan.memory_budget_bytes
    return "" if budget is None else f", which has room for {bytes_text(budget)}"


def _over_budget(plan: ShardingPlan, budget: float) -> str:
    forced = [table.name for table in plan.tables if table.forced]
    advice = "use more ranks, machines with more memory, cache.disk or a smaller dim"
    if forced:
        advice = f"leave the sharding of {', '.join(forced)} to auto, or {advice}"
    return (
        f"the rows do not fit: about {bytes_text(plan.memory_bytes)} at the fullest rank, which "
        f"has room for {bytes_text(budget)}; {advice}"
    )


def bytes_text(amount: float) -> str:
    """Returns an amount of bytes with three digits and a unit: `1.23 MB`."""
    unit = 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    digits = 0 if unit == 0 or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {_UNITS[unit]}"


def _cells(table: TablePlan) -> list[str]:
    scheme = table.scheme if table.owner is None else f"{table.scheme}@{table.owner}"
    return [
        table.name,
        str(table.dim),
        f"{table.rows:,.0f}",
        f"{table.lookups:,.0f}",
        f"{table.distinct:.3f}",
        f"{table.hottest:.3f}",
        *(
            "-" if table.costs[s].refused else bytes_text(table.costs[s].busiest_bytes)
            for s in SCHEMES
        ),
        bytes_text(table.cost.memory_bytes),
        scheme,
        table.why,
    ]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    last = len(cells) - 2
    aligned = [
        cell.ljust(width) if i < _LEFT or i >= last else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()
