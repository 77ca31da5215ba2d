"""`Piece`: a file, or consecutive rows of it, that one rank reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Span = tuple[int, int]
"""Start and stop of a part of a file: rows of Parquet, bytes of text that is not compressed.

A line belongs to the span in which it begins.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a part of it.

    Attributes:
        path: the file.
        span: the part; None: the whole file.
    """

    path: Path
    span: Span | None = None
