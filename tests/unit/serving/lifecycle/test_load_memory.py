"""What a load needs of memory, and its refusal when less is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hotrow.errors import ResourceExhaustedError
from hotrow.manifest import Manifest, ManifestTable
from hotrow.memory_bounds import MemoryBound
from hotrow.protos import control_pb2
from hotrow.serving.config.row_options import RowOptions
from hotrow.serving.lifecycle.load_memory import LoadMemory, check_memory, needed_bytes

MIB = 2**20


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A version with 3 MiB of variables, a graph of 1 MiB, and two tables of 1000 and 3000 rows."""
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "variables.data-00000-of-00002").write_bytes(b"v" * MIB)
    (tmp_path / "variables" / "variables.data-00001-of-00002").write_bytes(b"v" * 2 * MIB)
    (tmp_path / "variables" / "variables.index").write_bytes(b"index")
    (tmp_path / "saved_model.pb").write_bytes(b"g" * MIB)
    tables = (
        ManifestTable(name="a", dim=16, rows=1000, digest=""),  # 24 + 64 bytes a slot
        ManifestTable(name="b", dim=3, dtype="float16", rows=3000, digest=""),  # 24 + 8
    )
    manifest = Manifest(
        model="m",
        version=1,
        step=0,
        generation="g",
        store="file:rows",
        tables=tables,
        features=(),
        schema_hash="",
    )
    (tmp_path / "manifest").write_text(manifest.to_json())
    return tmp_path


def test_a_version_needs_its_variables_its_graph_and_its_cache(version: Path) -> None:
    assert needed_bytes(version, "", RowOptions()) == {"variables": 3 * MIB, "the graph": MIB}
    manifest = str(version / "manifest")
    rows = RowOptions(cache_rows=400)
    assert needed_bytes(version, manifest, rows) == {
        "variables": 3 * MIB,
        "the graph": MIB,
        "the cache of rows": 100 * 88 + 300 * 32,
    }
    assert needed_bytes(version, manifest, RowOptions())["the cache of rows"] == 0
    assert needed_bytes(version, manifest, RowOptions(cache_bytes=5))["the cache of rows"] == 5


@pytest.mark.parametrize(
    "rows", [RowOptions(cache_rows=10**9), RowOptions(cache_bytes=10**12)], ids=["rows", "bytes"]
)
def test_a_cache_is_no_larger_than_twice_what_is_stored(version: Path, rows: RowOptions) -> None:
    most = (2 * 1000 + 16) * 88 + (2 * 3000 + 16) * 32
    assert needed_bytes(version, str(version / "manifest"), rows)["the cache of rows"] == most


def test_what_is_more_than_is_left_is_refused_with_the_numbers() -> None:
    bounds = [
        MemoryBound("m", "the machine", 64 * MIB, 32 * MIB),
        MemoryBound("m/c", "the cgroup /sys/fs/cgroup/a", 16 * MIB, 3 * MIB, MIB),
    ]
    check_memory("models/7", {"variables": 3 * MIB, "the graph": MIB}, bounds)
    with pytest.raises(ResourceExhaustedError) as refused:
        check_memory("models/7", {"variables": 3 * MIB, "the graph": 2 * MIB}, bounds)
    assert str(refused.value) == (
        "models/7 needs at least 5 MiB of memory (variables 3 MiB, the graph 2 MiB), and the "
        "cgroup /sys/fs/cgroup/a has 4 MiB of its 16 MiB left; raise the limit, lower --cache_rows "
        "or --cache_bytes, or serve fewer versions at a time (--check_load_memory=false loads it "
        "all the same)"
    )


def test_a_load_waits_for_those_that_leave_it_no_room(version: Path) -> None:
    left = [7 * MIB]
    memory = LoadMemory(RowOptions(), lambda: [MemoryBound("m", "the machine", 64 * MIB, left[0])])
    request = control_pb2.LoadRequest(path=str(version))  # 4 MiB
    second = control_pb2.LoadRequest(path=str(version), shares=1)  # 3 MiB
    began = threading.Event()

    def load() -> None:
        with memory.reserve(request):
            began.set()

    with memory.reserve(request):
        with memory.reserve(second):
            thread = threading.Thread(target=load)
            thread.start()
            assert not began.wait(0.1)
        # There is room for it beside neither.
        assert not began.wait(0.1)
    assert began.wait(10)
    thread.join()
    left[0] = 3 * MIB
    with pytest.raises(ResourceExhaustedError, match="needs at least 4 MiB"):
        load()
    with memory.reserve(second):
        pass
