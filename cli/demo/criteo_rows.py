"""Rows of Criteo-format files for the demo: the split, and rows as JSON instances."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import IO, Any

TRAIN_SHARE = 0.8
DENSE = [f"I{i}" for i in range(1, 14)]
SPARSE = [f"C{i}" for i in range(1, 27)]


def open_rows(path: Path) -> IO[bytes]:
    """Opens a file, gzip or plain, by its first bytes."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else path.open("rb")  # type: ignore[return-value]


def split_rows(source: Path, train: Path, valid: Path) -> int:
    """Writes the first 80 % of the rows to `train` and the rest to `valid`, gzip.

    Returns:
        The rows of `train`.
    """
    with open_rows(source) as file:
        total = sum(1 for _ in file)
    train_rows = int(total * TRAIN_SHARE)
    with open_rows(source) as file:
        for path, count in ((train, train_rows), (valid, total)):
            with gzip.open(path, "wb", compresslevel=1) as out:
                out.writelines(islice(file, count))
    return train_rows


def example_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """Returns the first rows as REST instances: a missing number is NaN, a missing text ""."""
    with open_rows(path) as file:
        lines = [line.decode().rstrip("\n").split("\t") for line in islice(file, count)]
    rows = []
    for fields in lines:
        numbers = {
            name: float(text) if text else float("nan")
            for name, text in zip(DENSE, fields[1:14], strict=True)
        }
        rows.append({**numbers, **dict(zip(SPARSE, fields[14:], strict=True))})
    return rows
