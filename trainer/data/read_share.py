"""`ReadShare`: how much of a file a pass over it has read."""

from __future__ import annotations


class ReadShare:
    """Share of a file that was read: of a text file, its bytes on disk; of Parquet, its rows.

    Attributes:
        value: in [0, 1].
    """

    def __init__(self) -> None:
        """Starts at 0."""
        self.value = 0.0

    def set(self, done: int, total: int) -> None:
        """Sets the share to `done` of `total`; an empty file has share 1."""
        self.value = min(1.0, done / total) if total else 1.0
