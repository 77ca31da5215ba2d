"""Counts the rows of text without reading their values."""

from __future__ import annotations

import re

import numpy as np

_LINE_END = re.compile(rb"\r\n|\n|\r")
_NEWLINE, _RETURN = b"\n\r"
_BLANKS = b" \t\n\r\v\f"


def count_newlines(text: bytes) -> int:
    """Returns how many newlines a text has; several times as fast as `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))


def rows_of_lines(text: bytes, comment: bytes | None = None, returns_end_lines: bool = True) -> int:
    """Returns how many lines are rows: all that hold more than blanks.

    Args:
        text: whole lines; values have no line ends.
        comment: the byte that begins a comment, which is no row; None: there are no comments.
        returns_end_lines: a carriage return without a newline ends a line, too.
    """
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if returns_end_lines and b"\r" in text:
        returns = np.count_nonzero(data == _RETURN)
        if np.count_nonzero(data[ends[ends > 0] - 1] == _RETURN) != returns:
            return sum(1 for line in _LINE_END.split(text) if line.strip())
    starts = np.concatenate([[0], ends + 1])
    if starts[-1] == len(text):
        starts, ends = starts[:-1], ends[: len(starts) - 1]
    if len(starts) > len(ends):
        ends = np.append(ends, len(text))
    begins_blank = np.zeros(256, np.bool_)
    begins_blank[list(_BLANKS + (comment or b""))] = True
    doubtful = begins_blank[data[starts]]
    empty = 0
    for start, end in zip(starts[doubtful].tolist(), ends[doubtful].tolist(), strict=True):
        line = text[start:end]
        if comment is not None:
            line = line.partition(comment)[0]
        empty += not line.strip()
    return len(starts) - empty
