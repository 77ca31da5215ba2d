"""The delimiter of delimited text, and whether its first line is a header.

`csv.Sniffer` is not used: it takes the first character that repeats. So it returns a wrong
delimiter for a text with commas between semicolons, or for one column of dates.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.lines import line_blocks

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_LINES = 500


@dataclass(frozen=True)
class Dialect:
    """How to read a file of delimited text.

    Attributes:
        delimiter: the character between two values.
        names: names of the columns: from the header, or c1, c2 and so on.
        header: whether the first line is a header.
    """

    delimiter: str
    names: tuple[str, ...]
    header: bool


def sample_lines(path: Path) -> list[str]:
    """Returns the first non-blank lines of a file.

    Raises:
        NotFoundError, DataError: as `line_blocks`.
    """
    for block in line_blocks(path, block_bytes=1 << 18):
        lines = [line.decode(errors="replace") for _, line in block.rows()[:SAMPLE_LINES]]
        return [line for line in lines if line.strip()]
    return []


def guess_dialect(lines: Sequence[str], delimiter: str | None = None) -> Dialect:
    """Returns how to read lines of delimited text.

    Args:
        lines: the first lines of the file; at least one.
        delimiter: the delimiter, if it is known.
    """
    delimiter = delimiter or guess_delimiter(lines) or ","
    rows = [fields_of(line, delimiter) for line in lines]
    rows = [row for row in rows if len(row) == len(rows[0])]
    header = _has_header(rows)
    names = rows[0] if header else [f"c{i + 1}" for i in range(len(rows[0]))]
    return Dialect(delimiter, tuple(names), header)


def guess_delimiter(lines: Sequence[str]) -> str | None:
    """Returns the character that cuts most lines into as many fields as the first line.

    Among several, it prefers the character with more fields; None if none cuts the first line.
    """
    best: tuple[float, int, str] | None = None
    for delimiter in DELIMITERS:
        counts = [len(fields_of(line, delimiter)) for line in lines]
        usual, times = Counter(counts).most_common(1)[0]
        if counts[0] < 2 or usual != counts[0]:
            continue
        found = (round(times / len(counts), 1), usual, delimiter)
        if best is None or found[:2] > best[:2]:
            best = found
    return None if best is None else best[2]


def refuse_wrong_delimiter(path: Path, lines: Sequence[str], delimiter: str) -> None:
    """Refuses a delimiter that does not cut line 1, if another character cuts the lines.

    Raises:
        DataError: another character does.
    """
    better = guess_delimiter(lines)
    if better is not None and len(fields_of(lines[0], delimiter)) == 1:
        raise DataError(
            f"{path}: line 1 has one field between delimiters {delimiter!r}, "
            f"{len(fields_of(lines[0], better))} between {better!r}; set data.delimiter "
            f"(--delimiter) to {better!r}"
        )


def fields_of(line: str, delimiter: str) -> list[str]:
    """Returns the values of a line, as the reader trims them."""
    fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    return [field.strip() for field in fields]


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row is a header.

    It is one if none of its fields is a number, empty or repeated; and a column below has numbers,
    or no value of the first row occurs again in its column.
    """
    first, below = rows[0], rows[1:]
    if any(not name or _is_number(name) for name in first) or len(set(first)) < len(first):
        return False
    columns = [[row[i] for row in below if row[i]] for i in range(len(first))]
    if any(column and all(map(_is_number, column)) for column in columns):
        return True
    return not any(name in column for name, column in zip(first, columns, strict=True))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
