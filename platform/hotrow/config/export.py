"""The section `export`."""

from __future__ import annotations

from pydantic import Field

from hotrow.config.section import Section
from hotrow.norms import MAX_NORM_RATIO


class ExportConfig(Section):
    """Gates of `platform export`, and what it keeps to go back.

    Attributes:
        max_norm_ratio: how many times the norm of a table or dense weight may grow or shrink from
            one export to the next; None: any number of times.
        undo_cuts: for how many of the newest incremental exports the rows that they replace stay in
            the store, so that a rollback can bring them back.
    """

    max_norm_ratio: float | None = Field(default=MAX_NORM_RATIO, gt=1)
    undo_cuts: int = Field(default=1, ge=0)
