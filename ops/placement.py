"""The device of a table's ops: the CPU, or the GPU that has the table's cache."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from hotrow.errors import FailedPreconditionError
from hotrow.ops import library
from hotrow.spec import TableConfig

CPU = "/device:CPU:0"
"""TensorFlow's name of the host."""


@dataclass(frozen=True)
class Placement:
    """A TensorFlow device.

    Attributes:
        device: TensorFlow's name of it.
        cuda_device: CUDA's number of the GPU; None: the device is the host.
    """

    device: str = CPU
    cuda_device: int | None = None


def placement_of(config: TableConfig) -> Placement:
    """Returns the device of a table's ops.

    For a GPU, the native core allocates its memory there from TensorFlow from then on.

    Raises:
        FailedPreconditionError: TensorFlow has no such GPU.
    """
    cache = config.cache
    if cache is None or cache.gpu is None:
        return Placement()
    gpu = cache.gpu
    advice = (
        f"table {config.name!r}: its cache is on {cache.device!r}, and TensorFlow has no "
        f"GPU {gpu} here; make the table with Cache(device='cpu') (cache.device: cpu in a "
        "configuration): its rows come out the same"
    )
    try:
        with tf.init_scope(), tf.device(f"/device:GPU:{gpu}"):
            number = library.load().hotrow_device()
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as err:
        raise FailedPreconditionError(advice) from err
    # The device on which the op ran: TensorFlow may use another GPU when this one does not exist.
    ran = tf.DeviceSpec.from_string(number.device)
    if ran.device_index != gpu:
        raise FailedPreconditionError(advice)
    return Placement(f"/device:{ran.device_type}:{gpu}", int(number))
