"""The model of online_lookup.py: 26 tables and a small dense part, exported twice.

    python -m peers.online_model ROWS_OF_TABLE DIM FOLDER STORE_URL

`FOLDER/m` has its rows in the store, `FOLDER/graph` the same ones in the variables of the graph.
Runs in a process of its own, whose end frees the tables.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TABLES, DENSE, HIDDEN = 26, 13, (64, 32)
_CHUNK = 262_144


def keys_of(ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the keys of ranks, int64: `key_of` of zipf_keys.h."""
    from hotrow.ops.row_batch import mixed

    return (mixed(np.ascontiguousarray(ranks, np.int64)) >> np.uint64(1)).astype(np.int64)


def build(rows: int, dim: int) -> Any:
    """Returns a Keras model whose tables have rows of random weights."""
    import keras

    import hotrow

    features = [
        hotrow.FeatureConfig(
            f"C{t}",
            hotrow.TableConfig(f"C{t}", dim, combiner="sum", optimizer=hotrow.SGD(0.1)),
        )
        for t in range(TABLES)
    ]
    layer = hotrow.DistributedEmbedding(features)
    inputs = {f"C{t}": keras.Input((), dtype="int64", name=f"C{t}") for t in range(TABLES)}
    found = layer(inputs)
    inputs["numbers"] = keras.Input((DENSE,), name="numbers")
    x = keras.layers.Concatenate()([*(found[f"C{t}"] for t in range(TABLES)), inputs["numbers"]])
    for units in HIDDEN:
        x = keras.layers.Dense(units, activation="relu")(x)
    model = keras.Model(inputs, {"scores": keras.layers.Dense(1, activation="sigmoid")(x)})
    for table in layer.tables.values():
        for first in range(0, rows, _CHUNK):
            table.lookup(keys_of(np.arange(first, min(first + _CHUNK, rows))), insert=True)
    return model


def main(rows: int, dim: int, folder: Path, url: str) -> None:
    """Exports both, and prints how long each took."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import hotrow

    model = build(rows, dim)
    for name, options in (("m", {"store": url}), ("graph", {"standalone": True})):
        began = time.monotonic()
        hotrow.export_model(model, folder, name, **options)  # type: ignore[arg-type]
        print(f"{name} {time.monotonic() - began:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
