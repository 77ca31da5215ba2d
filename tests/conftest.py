"""What all tests share: the shared data, Redis servers."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Ranks that are threads of one process wait for each other in ops, each on a thread of TensorFlow.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "8")

# CI repeats the same examples, so that a failure points to the change; elsewhere each run tries new
# ones.
if os.environ.get("CI") == "true":
    import hypothesis  # not on every GPU machine, which runs tests/gpu

    hypothesis.settings.register_profile("ci", derandomize=True)
    hypothesis.settings.load_profile("ci")

ROOT = Path(__file__).resolve().parent.parent

pytest_plugins = ["redis_servers.fixtures"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data sets. Absent: skipped with that reason; in CI: a failure."""
    folder = Path(os.environ.get("SHARED") or ROOT.parent / "shared").resolve()
    if not (folder / "data").is_dir():
        reason = f"the shared data sets are not at {folder} (set SHARED)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from scanning what was imported: a million objects."""
    gc.collect()
    gc.freeze()
