"""Keras saves and loads a table piece by piece: memory does not grow by the table's bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ROWS, DIM = 1_000_000, 32
TABLE_BYTES = ROWS * DIM * 4 * 2  # weights, and Adagrad's sums
BOUND = 0.3 * TABLE_BYTES

PROGRAM = """
import json, os, sys
from pathlib import Path
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
import hotrow

def memory(name):
    # Not ru_maxrss, which begins with the peak of the process that started this one.
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields[name].split()[0])

def grown(before=None):
    return memory("VmHWM") - (memory("VmRSS") if before is None else before)

kind, path, rows, dim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
config = hotrow.TableConfig("t", dim, optimizer=hotrow.Adagrad(0.1))
inputs = {"f": keras.Input((), dtype="int64", name="f")}
layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", config)])
model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)["f"]))
model({"f": np.zeros(1, np.int64)})
table = layer.tables["t"]
keys = np.arange(rows, dtype=np.int64) * 7

def fill():
    for first in range(0, rows, 8192):
        table.lookup(keys[first : first + 8192], insert=True)

if kind in ("save", "load"):
    save, load = model.save_weights, model.load_weights
else:
    save, load = model.save, lambda path: keras.models.load_model(path)
if kind in ("save", "save archive"):
    fill()
    before = memory("VmRSS")
    save(path)
    # Pages of the table's own growth may have been at the peak before.
    print(json.dumps({"grown": grown(before), "table": table.bytes, "digest": table.digest()}))
else:
    loaded = load(path)
    if loaded is not None:
        (layer,) = (x for x in loaded.layers if isinstance(x, hotrow.DistributedEmbedding))
        table = layer.tables["t"]
    print(json.dumps({"grown": grown(), "table": table.bytes, "digest": table.digest()}))
"""


def run(kind, path):
    arguments = [kind, str(path), str(ROWS), str(DIM)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("ending", "how"),
    [(".weights.h5", ""), pytest.param(".keras", " archive", marks=pytest.mark.slow)],
    ids=["weights", "archive"],
)
def test_saving_and_loading_take_a_part_of_the_memory_of_the_table(tmp_path, ending, how):
    path = tmp_path / f"model{ending}"
    saved, loaded = run(f"save{how}", path), run(f"load{how}", path)
    assert saved["table"] >= TABLE_BYTES
    assert loaded["digest"] == saved["digest"]
    assert saved["grown"] < BOUND
    assert loaded["grown"] < BOUND
