"""The bytes that each scheme sends and receives in a training step, from its messages' contents.

Symbols: N ranks, B samples of the global batch, D width, S = 4 D the bytes of a row in a message
(float32, whatever the table's dtype). Of rank r: K_r keys in its slice, O_r outputs (samples times
features), M_r the bytes of keys, row splits and weights, U_r distinct keys, A_r of them owned by
others, Q_r keys of others that r owns; of `replicated`, where the V distinct keys of the global
batch are cut into N parts: P_r keys of r in parts of others. u(x): the bytes of x distinct keys and
their counts, 9 x and 4 a count from 255 on. D_r = D div N, the first D mod N ranks one more.
sum O: the sum over the other ranks.

Bytes that rank r sends to other ranks (received bytes are the same sums from the other side):

    scheme          keys          rows           gradients          sums
    row             u(A_r)        S Q_r          S A_r
    table, others   u(U_r)        0              S U_r
    table, owner    0             S sum U        0
    column          (N-1) M_r     4 D_r sum O    4 (D - D_r) O_r
    row_broadcast   (N-1) M_r     S sum O        S (N-1) O_r
    replicated      (N-1) u(U_r)  0              S P_r              S (N-1) V / N

An optimizer that needs numbers of whole rows (row-wise Adagrad's sum of squares, a row's norm to
clip) makes ranks with columns sum theirs: 8 V (N-1)/N more in sums for each such number. Two costs
are left out. The sizes of messages are sent first: 16 bytes a table and rank (24 a feature and rank
where keys go to all). Padding aligns each table to a multiple of 8 bytes in every message.

OneFlow's Wide & Deep has the formulas for many ranks, one key a feature and no weights (F features,
K_r = O_r = B F / N, M_r = 8 B F / N, U_r = d B F / N): A is `column`, B is `row_broadcast`, C is
`row`. A rank keeps an Nth of its messages to itself, so ours are (N-1)/N of theirs: A (8 BF + 8
BFD/N) (N-1)/N (the reference has that factor in A's ids alone), B (8 BF + 8 BFD) (N-1)/N, and C d
(9 BF/N + 8 BFD/N) (N-1)/N, where the ninth byte is the count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.ops.planner.facts import TableFacts
from hotrow.spec import SHARDINGS

Floats = npt.NDArray[np.float64]

SCHEMES = SHARDINGS
"""Legal schemes."""
STAGES = ("keys", "rows", "gradients", "sums")
FLOAT_BYTES = 4


@dataclass(frozen=True, eq=False)
class Volume:
    """Bytes to and from other ranks in each of M steps.

    Attributes:
        sent, received: float64 [M, 4, N], by step, stage and rank.
    """

    sent: Floats
    received: Floats

    @property
    def load(self) -> Floats:
        """Float64 [M, N]: the larger direction of each stage, summed: links are full duplex."""
        loads: Floats = np.maximum(self.sent, self.received).sum(axis=1)
        return loads

    @property
    def busiest(self) -> float:
        """The load of a step's busiest rank; the mean over steps."""
        return float(self.load.max(axis=1).mean())

    @property
    def stages(self) -> dict[str, float]:
        """Bytes that a rank sends in a stage; the mean over steps and ranks."""
        return dict(zip(STAGES, self.sent.mean(axis=(0, 2)).tolist(), strict=True))

    @property
    def average(self) -> float:
        """Bytes that a rank sends in a step; the mean over steps and ranks."""
        return sum(self.stages.values())

    def __add__(self, other: Volume) -> Volume:
        """Returns the bytes of both: tables share the messages of a stage."""
        return Volume(self.sent + other.sent, self.received + other.received)

    def __sub__(self, other: Volume) -> Volume:
        """Returns the bytes without those of `other`."""
        return Volume(self.sent - other.sent, self.received - other.received)

    @classmethod
    def nothing(cls, ranks: int) -> Volume:
        """Returns zero bytes, of one step; it can be added to the bytes of any number of steps."""
        return cls(np.zeros((1, len(STAGES), ranks)), np.zeros((1, len(STAGES), ranks)))


def volume(
    scheme: str, facts: TableFacts, dim: int, owner: int = 0, whole_row_sums: int = 0
) -> Volume:
    """Returns the bytes of one table.

    Args:
        scheme: one of `SCHEMES`.
        facts: the table's facts.
        dim: D.
        owner: the rank that has the table; for `table` alone.
        whole_row_sums: numbers a row that the optimizer computes from all D columns; for `column`
            alone, whose ranks sum their parts.
    """
    moved = _VOLUMES[scheme](facts, dim, owner)
    return moved + _whole_rows(facts, whole_row_sums) if scheme == "column" else moved


def columns_of(dim: int, ranks: int) -> npt.NDArray[np.int64]:
    """Returns how many columns of a row each rank has in `column`, int64 [N]."""
    return dim // ranks + (np.arange(ranks) < dim % ranks)


def _row(facts: TableFacts, dim: int, owner: int) -> Volume:
    row = FLOAT_BYTES * dim
    return _volume(
        keys=(facts.away_bytes, facts.asked_bytes),
        rows=(row * facts.asked, row * facts.away),
        gradients=(row * facts.away, row * facts.asked),
    )


def _table(facts: TableFacts, dim: int, owner: int) -> Volume:
    row = FLOAT_BYTES * dim
    at_owner = np.arange(facts.ranks) == owner
    keys, away = (np.where(at_owner, 0, x) for x in (facts.distinct_bytes, facts.distinct))
    asked_bytes, asked = (np.where(at_owner, x.sum(axis=1, keepdims=True), 0) for x in (keys, away))
    return _volume(
        keys=(keys, asked_bytes),
        rows=(row * asked, row * away),
        gradients=(row * away, row * asked),
    )


def _column(facts: TableFacts, dim: int, owner: int) -> Volume:
    own = columns_of(dim, facts.ranks)
    there = FLOAT_BYTES * own * _of_others(facts.outputs)
    here = FLOAT_BYTES * (dim - own) * facts.outputs
    return _volume(keys=_to_all(facts.broadcast_bytes), rows=(there, here), gradients=(here, there))


def _whole_rows(facts: TableFacts, count: int) -> Volume:
    # An all-reduce costs at least a reduce-scatter and an all-gather.
    union = facts.part.sum(axis=1, keepdims=True)
    none = np.zeros_like(facts.part)
    sums = none + 2 * FLOAT_BYTES * count * union * (facts.ranks - 1) / facts.ranks
    return _volume(keys=(none, none), sums=(sums, sums))


def _row_broadcast(facts: TableFacts, dim: int, owner: int) -> Volume:
    there = FLOAT_BYTES * dim * _of_others(facts.outputs)
    here = FLOAT_BYTES * dim * (facts.ranks - 1) * facts.outputs
    return _volume(keys=_to_all(facts.broadcast_bytes), rows=(there, here), gradients=(here, there))


def _replicated(facts: TableFacts, dim: int, owner: int) -> Volume:
    row, none = FLOAT_BYTES * dim, np.zeros_like(facts.part)
    return _volume(
        keys=_to_all(facts.distinct_bytes),
        rows=(none, none),
        gradients=(row * facts.parted, row * facts.gathered),
        sums=_to_all(row * facts.part),
    )


_VOLUMES: dict[str, Callable[[TableFacts, int, int], Volume]] = {
    "row": _row,
    "column": _column,
    "row_broadcast": _row_broadcast,
    "table": _table,
    "replicated": _replicated,
}


def _of_others(values: Floats) -> Floats:
    result: Floats = values.sum(axis=1, keepdims=True) - values
    return result


def _to_all(message: Floats) -> tuple[Floats, Floats]:
    return (message.shape[1] - 1) * message, _of_others(message)


def _volume(**stages: tuple[Floats, Floats]) -> Volume:
    none = np.zeros_like(stages["keys"][0])
    pairs = [stages.get(stage, (none, none)) for stage in STAGES]
    return Volume(*(np.stack(side, axis=1) for side in zip(*pairs, strict=True)))
