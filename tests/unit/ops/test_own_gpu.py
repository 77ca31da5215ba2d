"""Ranks of a machine take its GPUs in turn."""

from __future__ import annotations

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

    def list_physical_devices(self, kind: str) -> list[str]:
        assert kind == "GPU"
        return self.gpus

    def set_visible_devices(self, devices: list[str], kind: str) -> None:
        assert kind == "GPU"
        self.chosen[threading.current_thread().name] = devices


@pytest.mark.parametrize(
    ("gpus", "chosen"),
    [
        (4, [["gpu 0"], ["gpu 1"], ["gpu 2"]]),
        (2, [["gpu 0"], ["gpu 1"], ["gpu 0"]]),
        (1, [None, None, None]),
        (0, [None, None, None]),
    ],
)
def test_each_rank_sees_its_own(monkeypatch, gpus, chosen):
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
    for rank in ranks:
        rank.close()


def test_ranks_of_other_machines_do_not_count(monkeypatch):
    seen = Seen(2)
    monkeypatch.setattr(tf, "config", seen)
    names = {"0": "one", "1": "one", "2": "two"}
    monkeypatch.setattr(
        own_gpu.socket, "gethostname", lambda: names[threading.current_thread().name]
    )
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
