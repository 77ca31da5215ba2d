"""The GPU of a rank: the ranks of a machine get its GPUs round-robin."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from hotrow.ops.ranks import Ranks


def take_own_gpu(ranks: Ranks) -> None:
    """Makes one of this machine's GPUs visible to TensorFlow, as /device:GPU:0. A collective.

    Rank r among a machine's ranks gets GPU r modulo the number of GPUs. GPUs that the launcher
    hides (CUDA_VISIBLE_DEVICES) do not count. Where ranks share a GPU, TensorFlow allocates its
    memory as needed, instead of all at once. On one rank, or without a GPU, nothing changes.

    Raises:
        RuntimeError: TensorFlow has initialised its devices already.
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
    """Returns the index of a rank's GPU on its machine, and whether ranks there share GPUs.

    Args:
        machines: the machine of each rank.
        rank: the rank.
        gpus: number of GPUs of its machine, at least one.
    """
    own = machines[rank]
    return machines[:rank].count(own) % gpus, machines.count(own) > gpus


def _this_machine() -> str:
    """Returns an id that is equal in all containers of a machine and unique to the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return socket.gethostname()
