"""`UnseenColumns`: the columns that no event has had so far; a name that is wrong shows here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

CHECKED_EVENTS = 10_000


class UnseenColumns:
    """Looks at the first events; a missing value is legal, so a wrong name is no error."""

    def __init__(self, names: Sequence[str], report: Callable[[str], None]) -> None:
        """Binds the columns and what takes a line about those without any value."""
        self._names = list(names)
        self._report = report
        self._events = 0

    def look(self, rows: pa.RecordBatch) -> None:
        """Looks at events; reports once, when there were enough of them."""
        if self._events >= CHECKED_EVENTS or not self._names:
            return
        self._events += rows.num_rows
        self._names = [name for name in self._names if not _has_value(rows.column(name))]
        if self._events >= CHECKED_EVENTS and self._names:
            self._report(
                f"the first {self._events:,} events have no value in {', '.join(self._names)}; "
                "are these the events' names of the columns?"
            )


def _has_value(values: pa.Array) -> bool:
    if pa.types.is_list(values.type):
        return len(values.flatten()) > 0
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if pa.types.is_string(values.type):
        values = values.filter(pc.not_equal(values, ""))
    return bool(len(values) > values.null_count)
