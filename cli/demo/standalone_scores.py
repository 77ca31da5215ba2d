"""Scores a Criteo-format file with a standalone export and stock TensorFlow, without Hotrow.

Usage: standalone_scores.py VERSION_DIR FILE.tsv.gz; prints the scores as JSON.
"""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import tensorflow as tf

BATCH_ROWS = 1024


def main(version: str, path: str) -> None:
    """Prints the probabilities of all rows as a JSON list."""
    score = tf.saved_model.load(version).signatures["serving_default"]
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    scores: list[float] = []
    for first in range(0, len(rows), BATCH_ROWS):
        batch = rows[first : first + BATCH_ROWS]
        inputs = {
            f"I{i}": tf.constant([float(row[i] or np.nan) for row in batch], tf.float32)
            for i in range(1, 14)
        }
        inputs |= {f"C{i}": tf.constant([row[13 + i] for row in batch]) for i in range(1, 27)}
        scores += score(**inputs)["scores"].numpy().tolist()
    assert "hotrow" not in sys.modules
    json.dump(scores, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
