"""What the planner knows of the data of a table, for N ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableFacts:
    """What one table is asked for in the steps of a sample.

    M batches of B samples; rank r's slice of one: rows [r B / N, (r + 1) B / N).
    Float64 [M, N], entry r for rank r, unless said otherwise.

    Attributes:
        lookups: keys in its slice, of all features of the table.
        outputs: rows of width D that its features give: a sample, or a key without a combiner.
        broadcast_bytes: its slice as `column` and `row_broadcast` send it to each other rank: 8 a
            key, 8 a row split, 4 a weight.
        distinct: distinct keys of its slice.
        distinct_bytes: the message with these and how often each appears; `key_message_bytes`.
        away: distinct keys of its slice that another rank owns.
        away_bytes: the messages with them.
        asked: distinct keys of the other slices that it owns; a key of two slices counts twice.
        asked_bytes: the messages with them.
        parted: distinct keys of its slice whose gradients another rank sums in `replicated`: the
            union of all slices, in the order of first appearance, is cut into N parts.
        gathered: distinct keys of the other slices whose gradients it sums.
        part: keys of the union whose gradients it sums.
        hottest: share of the lookups of a global batch that ask for one key, the greatest; a mean.
        seen: distinct keys of the sample; a number.
        rows: distinct keys of the whole data, extrapolated; `seen` where its length is not known.
        largest_share: share of the distinct keys that the rank with the most owns.
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
        """Distinct keys of the slices by their lookups, d; 1 without lookups."""
        lookups = self.lookups.sum()
        return float(self.distinct.sum() / lookups) if lookups else 1.0


BY_RANK = [f.name for f in fields(TableFacts)][:12]
"""The attributes of `TableFacts` that are float64 [M, N]."""
