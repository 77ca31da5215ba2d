"""Ranks of a machine take its GPUs in turn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.ops.device_collectives import nccl_library
from hotrow.ops.own_gpu import gpu_of
from hotrow.ops.ranks import start_ranks


@pytest.mark.parametrize(
    ("machines", "gpus", "taken"),
    [
        ("aaa", 4, [(0, False), (1, False), (2, False)]),
        ("aaa", 3, [(0, False), (1, False), (2, False)]),
        ("aaa", 2, [(0, True), (1, True), (0, True)]),
        ("aaa", 1, [(0, True), (0, True), (0, True)]),
        ("aab", 2, [(0, False), (1, False), (0, False)]),
        ("abab", 1, [(0, True), (0, True), (0, True), (0, True)]),
    ],
)
def test_each_rank_takes_the_next_of_its_machine(machines, gpus, taken):
    names = [name.encode() for name in machines]
    assert [gpu_of(names, rank, gpus) for rank in range(len(names))] == taken


def test_a_way_that_is_none_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"device_collectives is 'mpi'.*nccl"):
        start_ranks(10.0, "mpi")


def test_the_library_of_nccl_is_found_in_its_wheel():
    assert Path(nccl_library()).name == "libnccl.so.2"


# Here are no GPUs. What is set for TensorFlow's CPU it refuses, too, once devices are open.
PROGRAM = """
import sys, types

def take(ranks):
    import tensorflow as tf
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    sys.stdout.write(f"{ranks.rank} set its device\\n")

sys.modules["hotrow.ops.own_gpu"] = types.SimpleNamespace(take_own_gpu=take)
from hotrow.cli.rank_process import this_rank
from hotrow.config import ParallelConfig

with this_rank(ParallelConfig(workers=2, timeout_seconds=60.0), True) as ranks:
    pass
"""


def test_devices_are_not_open_yet_when_a_rank_chooses_its_own():
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 set its device", "1 set its device"]
