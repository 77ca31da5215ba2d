"""Small files in Criteo's format, with columns that determine the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_criteo(path: Path, rows: int, seed: int, values: int) -> None:
    """Writes a file: a label, 13 counts, 26 columns of 32 bits in hexadecimal.

    Args:
        path: of the file.
        rows: lines.
        seed: of all that is random.
        values: number of values of a column; 5 occur only with label 0, and 5 only with label 1.
    """
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        label = int(random.random() < 0.4)
        numbers = ["" if random.random() < 0.2 else str(random.integers(0, 50)) for _ in range(13)]
        texts = [f"{random.integers(0, values) + 5 * label:08x}" for _ in range(26)]
        lines.append("\t".join([str(label), *numbers, *texts]))
    path.write_text("\n".join(lines) + "\n")
