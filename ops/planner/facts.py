"""The planner's facts about the data of a table, for N ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableFacts:
    """The lookups of one table in the steps of a sample.

    M batches of B samples; rank r's slice of a batch is rows [r B / N, (r + 1) B / N). Arrays are
    float64 [M, N], entry r for rank r, unless noted otherwise.

    Attributes:
        lookups: keys in its slice, of all features of the table.
        outputs: output rows of width D of its features: one a sample, or one a key without
            combiner.
        broadcast_bytes: the bytes of its slice as `column` and `row_broadcast` send it to each
            other rank: 8 a key, 8 a row split, 4 a weight.
        distinct: distinct keys of its slice.
        distinct_bytes: bytes of the message with these keys and their counts; `key_message_bytes`.
        away: distinct keys of its slice that another rank owns.
        away_bytes: bytes of the messages with these keys.
        asked: distinct keys of the other slices that it owns; a key in two slices counts twice.
        asked_bytes: bytes of the messages with these keys.
        parted: distinct keys of its slice whose gradients another rank sums in `replicated`: the
            union of all slices, in the order of first appearance, is cut into N parts.
        gathered: distinct keys of the other slices whose gradients it sums.
        part: keys of the union whose gradients it sums.
        hottest: the hottest key's share of the lookups of a global batch; a mean over batches.
        seen: distinct keys of the sample; a number.
        rows: distinct keys of all data, extrapolated; equal to `seen` if the data's length is
            unknown.
        largest_share: share of the distinct keys on the rank that owns most.
    """

    lookups: Floats
    outputs: Floats
    broadcast_bytes: Floats
    distinct: Floats
    distinct_bytes: Floats
    away: Floats
    away_bytes: Floats
    asked: Floats
    asked_bytes: Floats
    parted: Floats
    gathered: Floats
    part: Floats
    hottest: float
    seen: float
    rows: float
    largest_share: float

    @property
    def ranks(self) -> int:
        """N."""
        return int(self.lookups.shape[1])

    @property
    def dedup(self) -> float:
        """Distinct keys of the slices divided by their lookups, d; 1 without lookups."""
        lookups = self.lookups.sum()
        return float(self.distinct.sum() / lookups) if lookups else 1.0


BY_RANK = [f.name for f in fields(TableFacts)][:12]
"""The attributes of `TableFacts` that are float64 [M, N]."""
