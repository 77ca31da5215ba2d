"""When a cut that was not taken is tried again."""

from __future__ import annotations

import math

from hotrow.serving.data_plane.executable import ServerEndedError

# After a failure; doubled while the same cut fails.
RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 8.0
# After a cut that ended the executable: requests fail each time until it has restarted.
_LONGEST_CRASH_RETRY_SECONDS = 60.0
# Of one cut; then the next one is waited for.
MOST_CRASHES = 5


class Retries:
    """The failures of the newest cut that failed."""

    def __init__(self) -> None:
        self._version = 0
        self._seconds = 0.0
        self._crashes = 0

    def pause_after(self, version: int, error: Exception) -> float:
        """Returns the seconds until the next try; infinity: the cut is given up.

        Args:
            version: version of the cut.
            error: why it was not taken.
        """
        crashed = isinstance(error, ServerEndedError)
        longest = _LONGEST_CRASH_RETRY_SECONDS if crashed else _LONGEST_RETRY_SECONDS
        same = self._version == version
        self._seconds = min(2 * self._seconds, longest) if same else RETRY_SECONDS
        self._crashes = crashed + (self._crashes if same else 0)
        self._version = version
        return math.inf if self._crashes >= MOST_CRASHES else self._seconds
