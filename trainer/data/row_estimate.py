"""How long a data file is, without reading all of it."""

from __future__ import annotations

from pathlib import Path

from hotrow.trainer.data.lines import expected_lines
from hotrow.trainer.data.parquet import is_parquet, parquet_rows


def expected_rows(path: str | Path) -> float:
    """Returns how many rows a data file has: of Parquet exactly, of lines about.

    Args:
        path: as `open_data` takes it.

    Raises:
        NotFoundError, DataError: the file is missing or cannot be read.
    """
    path = Path(path)
    return float(parquet_rows(path)) if is_parquet(path) else expected_lines(path)
