"""Estimates the number of rows in a data file without reading all of it."""

from __future__ import annotations

from pathlib import Path

from hotrow.trainer.data.lines import expected_lines
from hotrow.trainer.data.parquet import is_parquet, parquet_rows


def expected_rows(path: str | Path) -> float:
    """Returns how many rows a data file has: exact for Parquet, an estimate for text.

    Args:
        path: as for `open_data`.

    Raises:
        NotFoundError, DataError: the file is missing or cannot be read.
    """
    path = Path(path)
    return float(parquet_rows(path)) if is_parquet(path) else expected_lines(path)
