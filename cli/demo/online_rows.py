"""The rows that a trainer and its store have of given values, for the online demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.manifest import read_manifest
from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.trainer.data.encode import fingerprint_keys
from hotrow.trainer.trained_run import load_run
from hotrow.version_layout import FILE_NAME

_Rows = dict[str, npt.NDArray[np.float32]]


def rows_of_run_and_store(
    run_dir: Path, version: Path, values: Mapping[str, Sequence[str]]
) -> tuple[_Rows, _Rows]:
    """Returns rows float32 [N, D] by feature: of the newest checkpoint, and of the store.

    Args:
        run_dir: the run directory.
        version: the version directory; its cuts are folded.
        values: by column.
    """
    run = load_run(run_dir)
    manifest = read_manifest(version / "assets" / FILE_NAME)
    prefixes = {c.name: c.key_prefix for c in run.config.features.sparse_columns()}
    store = open_store(manifest.store)
    try:
        generation = Generations(store.records).get(manifest.generation)
        numbers = {table.name: n for n, table in enumerate(generation.tables)}
        assert run.model.embedding is not None
        trained, stored = {}, {}
        for feature in run.model.embedding.layout.features:
            column = run.model.features[feature.name]
            keys = fingerprint_keys(pa.array(values[column]), prefixes[column])
            table = run.model.tables()[feature.table.name]
            trained[feature.name] = table.lookup(keys)
            rows, _, states = store.read(generation, numbers[feature.table.name], keys)
            own = rows.view(np.float32).copy()
            own[states != 1] = generation.tables[numbers[feature.table.name]].default_value
            stored[feature.name] = own
        return trained, stored
    finally:
        store.close()
