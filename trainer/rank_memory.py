"""The memory that a rank may fill with rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hotrow.memory_bounds import memory_bounds
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import gathered

ROWS_SHARE = 0.8
"""Share for rows. While tables grow they take up to 1.15 times their bytes, and a checkpoint copies
up to a tenth of them; batches and dense weights are beside them."""


def row_budget_bytes(ranks: Ranks) -> float | None:
    """Returns the bytes of rows that every rank may hold; None where nothing shows it.

    It is `ROWS_SHARE` of the memory that is free now, on the rank with the least. Ranks of a
    machine share its MemAvailable equally, and ranks of a cgroup share what its limit leaves. A
    collective.
    """
    least = least_of_a_rank(gathered(ranks, "memory of the ranks", free_memory()))
    return None if least is None else ROWS_SHARE * least


def least_of_a_rank(free: Sequence[Mapping[str, int]]) -> float | None:
    """Returns the least bytes that a rank may take; None if no rank has a bound.

    Args:
        free: of each rank, the free bytes by what has them, as `free_memory` returns them.
    """
    sharing = Counter(name for own in free for name in own)
    return min((left / sharing[name] for own in free for name, left in own.items()), default=None)


def free_memory(root: Path = Path("/")) -> dict[str, int]:
    """Returns the free bytes of this machine, and of each cgroup of this process with a limit.

    File pages that the kernel may drop count as free.

    Args:
        root: folder that has `proc` and `sys`.

    Returns:
        By names that are equal on all ranks that share the memory.
    """
    return {bound.key: bound.free_bytes for bound in memory_bounds(root)}
