"""Checkpoints of format 2 with rows that a test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from safetensors.numpy import save_file

from hotrow.line_layout import ROW_TYPES, LineLayout
from hotrow.sealed_directory import read_manifest, seal_of, sealing
from hotrow.trainer.checkpoint.row_digests import digest_of
from hotrow.trainer.checkpoint.table_files import Rows

OPTIMIZER = "Adagrad"
TOTALS = {
    "rows": 0,
    "bytes": 0,
    "lookups": 0,
    "admitted": 5,
    "refused": 4,
    "waiting": 3,
    "expired": 2,
    "tombstones": 1,
}

Row = tuple[int, list[float], int, int]  # key, line as float32, clock, count


def write(
    parent: Path,
    step: int,
    tables: Mapping[str, Iterable[Row]],
    removed: Mapping[str, list[int]] | None = None,
    parents: Iterable[int] = (),
    sizes: Mapping[str, int] | None = None,
    rows_a_file: int = 3,
    layout: LineLayout | None = None,
) -> Path:
    """Writes `step-<step>` into `parent` and returns it; with `parents` it is an increment.

    `sizes` are the rows of a table with those of its parents, where these differ from its own.
    """
    layout = layout or LineLayout(2, vectors=1)
    names = [f"step-{number:08d}" for number in parents]
    facts: dict[str, Any] = {
        "format": 2,
        "position": {"step": step, "epoch": 0, "batch": step},
        "environment": {},
        "kind": "increment" if names else "full",
        "base": names[0] if names else None,
        "parents": names,
        "parent_seals": [seal_of(read_manifest(parent / name)) for name in names],
        "tables": {},
    }
    parent.mkdir(parents=True, exist_ok=True)
    with sealing(parent / f"step-{step:08d}", facts) as directory:
        folder = directory / "tables"
        folder.mkdir()
        for table, content in tables.items():
            rows, files = list(content), []
            for first in range(0, len(rows), rows_a_file):
                files.append(f"{quote(table, safe='')}-{len(files):05d}.safetensors")
                save_file(_arrays(rows[first : first + rows_a_file], layout), folder / files[-1])
            gone = np.array((removed or {}).get(table, []), np.int64)
            removed_file = f"{quote(table, safe='')}-removed.safetensors" if len(gone) else None
            if removed_file is not None:
                save_file({"keys": gone}, folder / removed_file)
            (folder / f"{quote(table, safe='')}.state").write_bytes(b"state")
            facts["tables"][table] = {
                "files": files,
                "rows": len(rows),
                "removed": removed_file,
                "removed_rows": len(gone),
                "state": f"{quote(table, safe='')}.state",
                "size": (sizes or {}).get(table, len(rows)),
                "shards": 1,
                "layout": _layout_facts(layout),
                "optimizer": OPTIMIZER,
                "step": step,
                "digest": None if names else _digest(rows, layout),
                "statistics": TOTALS,
            }
    return parent / f"step-{step:08d}"


def _digest(rows: list[Row], layout: LineLayout) -> str:
    if not rows:
        return "0" * 32
    return digest_of(Rows(**_arrays(rows, layout)))


def _arrays(rows: list[Row], layout: LineLayout) -> dict[str, Any]:
    keys, lines, clocks, counts = zip(*rows, strict=True)
    values = np.array(lines, np.float32).reshape(len(rows), -1)
    return {
        "keys": np.array(keys, np.int64),
        "lines": values.view(np.uint8).reshape(len(rows), layout.line_bytes),
        "clocks": np.array(clocks, np.uint32),
        "counts": np.array(counts, np.uint32),
        "places": np.arange(len(rows), dtype=np.uint32),
    }


def _layout_facts(layout: LineLayout) -> dict[str, int]:
    return {
        "width": layout.width,
        "weights_type": ROW_TYPES.index(layout.weights_type),
        "state_type": ROW_TYPES.index(layout.state_type),
        "vectors": layout.vectors,
        "scalars": layout.scalars,
        "state_offset": layout.state_offset,
        "scalars_offset": layout.scalars_offset,
        "line_bytes": layout.line_bytes,
    }
