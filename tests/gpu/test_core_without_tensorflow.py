"""The core and its binding build and work without TensorFlow, as on a GPU machine without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from native_build import built

NATIVE = Path(__file__).resolve().parents[2] / "ops" / "native"

PROGRAM = """\
import json
import sys
import numpy as np
import _native
assert _native.built_for_tensorflow == ""
assert not any(name.startswith("tensorflow") for name in sys.modules)
keys = np.array([5, -1, 5, 2**63 - 1, -2**63], np.int64)
unique, inverse = _native.unique(keys)
assert (unique[inverse] == keys).all()
options = dict(
    width=4, vocabulary_size=-1, default_value=0.0, init_kind=1, init_scale=0.1, seed=1,
    weights_type=0, state_type=0, shards=3, hashed=False,
    optimizer=dict(
        kind=2, learning_rate=0.1, clip_row_norm=0.0, l2=0.0, weight_decay=0.0, momentum=0.0,
        nesterov=False, initial_accumulator=0.1, epsilon=1e-7, beta_1=0.0, beta_2=0.0,
        row_steps=False, l1=0.0, ftrl_l2=0.0, l2_shrinkage=0.0, beta=0.0),
    admission=dict(kind=0, occurrences=1, expected_keys=0, error_rate=0.01),
    expiry=dict(after_steps=0, rare_count=0, rare_after_steps=0, sweep_steps=1000, tombstones=0))
cache = dict(rows=2, bytes=0, policy=0, disk="")
table = _native.Table(handle="t", name="t", cache=cache, **options)
try:
    _native.Table(handle="u", name="u", cache=cache | dict(gpu=0), **options)
except RuntimeError as err:
    assert "built without CUDA" in str(err), err
else:
    raise AssertionError("a table on a GPU, without CUDA")
rows = table.lookup(keys, True)
assert table.size == 4 and np.abs(rows).max() <= 0.1
table.update(keys, np.ones((5, 4), np.float32))
assert (table.lookup(keys) < rows).all()
rows = table.lookup(unique)
_native.LmdbWriter(sys.argv[1], "g", "t", 16).write(unique, rows.view(np.uint8), 1)
try:
    _native.LmdbReader(sys.argv[1], "g")
except RuntimeError as err:
    assert "no generation g" in str(err)
stored = dict(name="t", dim=4, row_type="float32", default_value=0.0, rows=4, pages=0)
record = dict(
    format=1, generation="g", number=1, shards=1, epoch=0, seq=1, state="complete", tables=[stored]
)
_native.LmdbRecords(sys.argv[1], True).swap_all([("generation/g", None, json.dumps(record))])
((read, _, states),), failure, _ = _native.LmdbReader(sys.argv[1], "g").read([(0, unique)])
assert failure == 0 and states.all() and (read.view(np.float32) == rows).all()
print("works")
"""


@pytest.fixture(scope="module")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds with -DHOTROW_TF=OFF."""
    build = tmp_path_factory.mktemp("native")
    configure = [
        "cmake", "-S", str(NATIVE), "-B", str(build), "-G", "Ninja", "-DHOTROW_TF=OFF",
        f"-DPython_EXECUTABLE={sys.executable}",
        # Slower code does the same, and is there sooner.
        "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0",
    ]  # fmt: skip
    # cmake and ninja may be wheels beside the interpreter.
    beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (configure, ["cmake", "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, env=beside)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not list((build / "lib").glob("libhotrow_tf*"))
    return build / "lib"


@pytest.mark.slow  # it builds the core once more
def test_the_core_works_without_tensorflow(library_folder: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        cwd=library_folder,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "works\n"


def test_the_core_is_linked_with_neither_tensorflow_nor_python() -> None:
    library = built("lib/libhotrow_core.so")
    needed = read("readelf", "--dynamic", library)
    undefined = read("nm", "--dynamic", "--undefined-only", library)
    assert "libc.so.6" in needed
    assert " memcpy" in undefined
    for line in (needed + undefined).lower().splitlines():
        assert "tensorflow" not in line
        assert "python" not in line
        assert not re.search(r"\bU _?py", line, re.IGNORECASE)


def read(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_core_includes_neither_tensorflow_nor_python() -> None:
    sources = [path for path in (NATIVE / "core").rglob("*.*") if path.is_file()]
    assert len(sources) > 200
    for source in sources:
        includes = [line for line in source.read_text().splitlines() if line.startswith("#include")]
        for line in includes:
            assert "tensorflow" not in line, source
            assert "Python.h" not in line, source
            assert "nanobind" not in line, source
