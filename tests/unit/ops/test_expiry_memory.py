"""A table whose keys come and expire takes bounded memory, and reports what it takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LIVE, STEPS = 40_000, 150
"""Keys of a step, and steps: in all, six million keys expire."""
BEYOND = 64 << 20
"""Memory that a table may take more after its keys have come and gone many times."""
FIXED = 8 << 20
"""Memory that does not depend on the rows: what first steps take."""

PROGRAM = """
import json, os, resource, sys
from pathlib import Path
import numpy as np
import hotrow
from hotrow.ops.table import Table

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

live, steps, beyond, exported = json.loads(sys.argv[1])
expiry = hotrow.Expiry(after_steps=2, sweep_steps=2)
table = Table(hotrow.TableConfig("t", 2, optimizer=hotrow.SGD(0.1), expiry=expiry), seed=1)
gradients = np.ones((live, 2), np.float32)

def train(step):
    keys = np.arange(step * live, (step + 1) * live, dtype=np.int64) * 7919
    table.lookup(keys, insert=True)
    table.update(keys, gradients)
    if exported and step % 10 == 0:
        table.note_exported("a store", table.step)

for step in range(20):
    train(step)
resident_before, reported_before = resident(), table.bytes
size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (size + beyond,) * 2)
for step in range(20, 20 + steps):
    train(step)
print(json.dumps({
    "resident": resident() - resident_before,
    "reported": table.bytes - reported_before,
    "bytes": table.bytes,
    **table.statistics(),
}))
"""


@pytest.mark.parametrize("exported", [False, True], ids=["never exported", "exported"])
def test_keys_that_come_and_expire_take_no_more_memory_than_the_table_reports(exported):
    arguments = json.dumps([LIVE, STEPS, BEYOND, exported])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["expired"] > LIVE * STEPS
    # Each export takes all, and there is one every 10 steps.
    assert found["tombstones"] <= exported * 10 * LIVE
    assert abs(found["resident"] - found["reported"]) < FIXED + 0.05 * found["bytes"]
