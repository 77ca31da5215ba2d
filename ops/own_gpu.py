"""The GPU of a rank: ranks of one machine take its GPUs in turn."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from hotrow.ops.ranks import Ranks


def take_own_gpu(ranks: Ranks) -> None:
    """Leaves TensorFlow one of this machine's GPUs, /device:GPU:0 from then on. A collective.

    Rank r of a machine's ranks gets GPU r modulo their number; GPUs that the launcher hid
    (CUDA_VISIBLE_DEVICES) do not count. Where ranks share a GPU, TensorFlow takes no more of its
    memory than it needs, instead of all. Nothing changes on one rank, or without a GPU.

    Raises:
        RuntimeError: TensorFlow has opened its devices already.
    """
    if ranks.size == 1:
        return
    machine = np.frombuffer(_this_machine().encode(), np.uint8)
    machines = [name.tobytes() for name in ranks.all_gather(machine, "machines of the ranks")]
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    number, is_shared = gpu_of(machines, ranks.rank, len(gpus))
    if len(gpus) > 1:
        tf.config.set_visible_devices([gpus[number]], "GPU")
    if is_shared:
        tf.config.experimental.set_memory_growth(gpus[number], True)


def gpu_of(machines: Sequence[bytes], rank: int, gpus: int) -> tuple[int, bool]:
    """Returns which of its machine's GPUs a rank takes, and whether ranks of it share some.

    Args:
        machines: of each rank.
        rank: whose GPU.
        gpus: how many its machine has, at least one.
    """
    own = machines[rank]
    return machines[:rank].count(own) % gpus, machines.count(own) > gpus


def _this_machine() -> str:
    """Returns what all containers of a machine have in common, and no other machine has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return socket.gethostname()
