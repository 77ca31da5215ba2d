"""A table takes the bytes that it reports, a bounded number a row, however large it grows."""

from __future__ import annotations

import json
import subprocess
import sys

SIZES = (500_000, 1_000_000, 2_000_000)
BEYOND = 24
"""Bytes of a row beside its line: header, index, and what is not in use yet."""
BEYOND_ON_DISK = 28
"""Bytes in memory of a row whose line is on disk, beside the buffers of the log."""
FIXED = 8 << 20
"""Memory that does not depend on the rows: what first lookups take, or the buffers of the log."""

PROGRAM = """
import json, os, sys
from pathlib import Path
import numpy as np
import hotrow
from hotrow.ops.table import Table

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

sizes, cache = json.loads(sys.argv[1]), json.loads(sys.argv[2])
config = hotrow.TableConfig(
    "t", 16, optimizer=hotrow.Adagrad(0.1), cache=hotrow.Cache(**cache) if cache else None
)
table = Table(config, seed=1)
table.lookup(np.array([-1]), insert=True)
empty, own, rows, measured = resident(), table.bytes, 0, []
for size in sizes:
    while rows < size:
        keys = np.arange(rows, min(rows + 4096, size), dtype=np.int64) * 7919
        table.lookup(keys, insert=True)
        rows += len(keys)
    measured.append({
        "reported": (table.bytes - own) / rows,
        "resident": (resident() - empty) / rows,
        "line": table.line_bytes,
        "rows": rows,
    })
print(json.dumps(measured))
"""


def measured(cache=None):
    arguments = [json.dumps(SIZES), json.dumps(cache)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_row_takes_its_line_and_24_bytes_at_every_size():
    for size in measured():
        assert size["line"] < size["reported"] <= size["line"] + BEYOND
        fixed = FIXED / size["rows"]
        assert 0.95 * size["reported"] < size["resident"] < 1.02 * size["reported"] + fixed


def test_a_row_on_disk_takes_28_bytes_at_every_size(tmp_path):
    for size in measured({"rows": 1024, "disk": str(tmp_path)}):
        fixed = FIXED / size["rows"]
        assert 0 < size["reported"] <= BEYOND_ON_DISK + fixed
        assert size["resident"] <= BEYOND_ON_DISK + 3 * fixed
