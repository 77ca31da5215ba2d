"""The line in the log that says what a version shows."""

from __future__ import annotations

import time

from hotrow.serving.updates.wanted_cuts import WantedCuts

# Between two lines: a trainer may publish a cut each second for weeks.
_PAUSE_SECONDS = 10.0


class ShownLine:
    """Leaves out lines that come soon after another one."""

    def __init__(self) -> None:
        self._due = 0.0
        self._left_out = 0

    def of(self, wanted: WantedCuts) -> str:
        """Returns the line about a state that is shown from now on; "": it is left out."""
        now = time.monotonic()
        if now < self._due:
            self._left_out += 1
            return ""
        rows = 0 if wanted.newest is None else wanted.newest.rows
        more = f"; {self._left_out} cuts before it are in no line" if self._left_out else ""
        self._due, self._left_out = now + _PAUSE_SECONDS, 0
        return f"shows step {wanted.step} (cut {wanted.version:016x}, {rows} rows){more}"
