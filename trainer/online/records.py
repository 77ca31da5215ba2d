"""`Records`: events as a source has them, before they are decoded. N events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.trainer.online.event_times import Times


@dataclass(frozen=True, eq=False)
class Records:
    """Events in the order of their partition.

    Attributes:
        payloads: the bytes of each, without a line end.
        received: float64 [N], when the source received each, Unix seconds.
        place: returns where the source has an event, as a JSON value, for dead letters.
    """

    payloads: Sequence[bytes]
    received: Times
    place: Callable[[int], Any]


@dataclass(frozen=True, eq=False)
class Parsed:
    """The columns of the events that could be parsed.

    Attributes:
        rows: M of the N events, with the columns `EventColumns.to_parse`.
        kept: int64 [M], their indices, ascending.
        problems: the others: index -> why.
    """

    rows: pa.RecordBatch
    kept: npt.NDArray[np.int64]
    problems: dict[int, str]


class Parser(Protocol):
    """A format of events."""

    def parse(self, payloads: Sequence[bytes]) -> Parsed:
        """Returns the columns of N events; each is parsed or has a problem."""
