"""The GPU of a rank: ranks of one machine take its GPUs in turn."""

from __future__ import annotations

import socket

import numpy as np
import tensorflow as tf

from hotrow.ops.ranks import Ranks


def take_own_gpu(ranks: Ranks) -> None:
    """Leaves TensorFlow one of this machine's GPUs, /device:GPU:0 from then on. A collective.

    Rank r of a machine's ranks gets GPU r modulo their number; GPUs that the launcher hid
    (CUDA_VISIBLE_DEVICES) do not count. Nothing changes on one rank, or with one GPU or none. It
    must come before anything else that uses a GPU.

    Raises:
        RuntimeError: TensorFlow uses GPUs already.
    """
    if ranks.size == 1:
        return
    machine = np.frombuffer(socket.gethostname().encode(), np.uint8)
    machines = [told.tobytes() for told in ranks.all_gather(machine, "machines of the ranks")]
    number = machines[: ranks.rank].count(machines[ranks.rank])
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        tf.config.set_visible_devices([gpus[number % len(gpus)]], "GPU")
