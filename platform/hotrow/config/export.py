"""The section `export`."""

from __future__ import annotations

from pydantic import Field

from hotrow.config.section import Section
from hotrow.hold_bounds import MAX_HOLD_BYTES, MAX_HOLD_SECONDS
from hotrow.norms import MAX_NORM_RATIO


class ExportConfig(Section):
    """Gates of `platform export`, and what it keeps to go back.

    Attributes:
        max_norm_ratio: how many times the norm of a table or dense weight may grow or shrink from
            one export to the next; None: any number of times.
        undo_cuts: for how many of the newest incremental exports the rows that they replace stay in
            the store, so that a rollback can bring them back.
        max_hold_seconds: for how long a reader that has not taken an incremental export (a
            `hotrow.bind`, a server that hangs) keeps it from replacing earlier rows; then the
            reader is overruled; None: for any time.
        max_hold_bytes: the same bound in bytes of exports that wait; None: any number.
    """

    max_norm_ratio: float | None = Field(default=MAX_NORM_RATIO, gt=1)
    undo_cuts: int = Field(default=1, ge=0)
    max_hold_seconds: float | None = Field(default=MAX_HOLD_SECONDS, ge=0)
    max_hold_bytes: int | None = Field(default=MAX_HOLD_BYTES, ge=0)
