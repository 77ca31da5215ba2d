"""Ranks of a machine take its GPUs in turn."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops import own_gpu
from hotrow.ops.device_collectives import nccl_library
from hotrow.ops.ranks import LONE, start_ranks, thread_ranks


class Seen:
    """What TensorFlow would be told, with this many GPUs."""

    def __init__(self, count: int) -> None:
        self.gpus = [f"gpu {number}" for number in range(count)]
        self.chosen: dict[str, object] = {}
        self.growing: set[object] = set()
        self.experimental = self

    def list_physical_devices(self, kind: str) -> list[str]:
        assert kind == "GPU"
        return self.gpus

    def set_memory_growth(self, device: str, grows: bool) -> None:
        assert grows
        self.growing.add(device)

    def set_visible_devices(self, devices: list[str], kind: str) -> None:
        assert kind == "GPU"
        self.chosen[threading.current_thread().name] = devices


@pytest.mark.parametrize(
    ("gpus", "chosen", "growing"),
    [
        (4, [["gpu 0"], ["gpu 1"], ["gpu 2"]], set()),
        (2, [["gpu 0"], ["gpu 1"], ["gpu 0"]], {"gpu 0", "gpu 1"}),
        (1, [None, None, None], {"gpu 0"}),
        (0, [None, None, None], set()),
    ],
)
def test_each_rank_sees_its_own_and_leaves_room_where_ranks_share(
    monkeypatch, gpus, chosen, growing
):
    seen = Seen(gpus)
    monkeypatch.setattr(tf, "config", seen)
    ranks = thread_ranks(3, 30.0)
    threads = [
        threading.Thread(target=own_gpu.take_own_gpu, args=(rank,), name=str(rank.rank))
        for rank in ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seen.chosen.get(str(rank)) for rank in range(3)] == chosen
    assert seen.growing == growing
    for rank in ranks:
        rank.close()


def test_ranks_of_other_machines_do_not_count(monkeypatch):
    seen = Seen(2)
    monkeypatch.setattr(tf, "config", seen)
    names = {"0": "one", "1": "one", "2": "two"}
    monkeypatch.setattr(own_gpu, "_this_machine", lambda: names[threading.current_thread().name])
    ranks = thread_ranks(3, 30.0)
    threads = [
        threading.Thread(target=own_gpu.take_own_gpu, args=(rank,), name=str(rank.rank))
        for rank in ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen.chosen == {"0": ["gpu 0"], "1": ["gpu 1"], "2": ["gpu 0"]}
    for rank in ranks:
        rank.close()


def test_one_rank_leaves_all_as_it_is(monkeypatch):
    seen = Seen(2)
    monkeypatch.setattr(tf, "config", seen)
    own_gpu.take_own_gpu(LONE)
    assert seen.chosen == {}


def test_a_way_that_is_none_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"device_collectives is 'mpi'.*nccl"):
        start_ranks(10.0, "mpi")


def test_the_library_of_nccl_is_found_where_its_wheel_is():
    found = nccl_library()
    assert found == "" or Path(found).name == "libnccl.so.2"


TENSORFLOW = """
class config:
    class threading:
        set_intra_op_parallelism_threads = set_inter_op_parallelism_threads = lambda count: None

    told = []
    list_physical_devices = staticmethod(lambda kind: ["gpu 0", "gpu 1"])

    @staticmethod
    def set_visible_devices(devices, kind):
        config.told.append(devices)

    @staticmethod
    def list_logical_devices():
        config.told.append("opened")
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from hotrow.cli.rank_process import this_rank
from hotrow.config import ParallelConfig

with this_rank(ParallelConfig(workers=2, timeout_seconds=60.0), True) as ranks:
    import tensorflow as tf
    sys.stdout.write(f"{ranks.rank} {tf.config.told}\\n")
"""


def test_a_rank_is_told_what_to_see_before_devices_are_opened(tmp_path):
    # TensorFlow refuses it later. Another one stands for it, since here are no GPUs.
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 [['gpu 0'], 'opened']",
        "1 [['gpu 1'], 'opened']",
    ]
