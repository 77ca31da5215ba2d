"""Variables that have the same values on all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hotrow.errors import HotrowError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import gathered


def spread_variables(variables: Sequence[Any], ranks: Ranks) -> None:
    """Sets Keras variables to their values on rank 0. A collective."""
    if ranks.size == 1:
        return
    values = [variable.numpy() for variable in variables]
    own = b"".join(np.ascontiguousarray(value).tobytes() for value in values)
    data = ranks.broadcast(own if ranks.is_first else None, "dense weights")
    start = 0
    for variable, value in zip(variables, values, strict=True):
        end = start + value.nbytes
        if not ranks.is_first:
            variable.assign(np.frombuffer(data[start:end], value.dtype).reshape(value.shape))
        start = end
    check_equal(variables, ranks)


def check_equal(variables: Sequence[Any], ranks: Ranks) -> None:
    """Checks that Keras variables have the same bits on all ranks. A collective.

    Raises:
        HotrowError: they differ.
    """
    if ranks.size == 1:
        return
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    digests = gathered(ranks, "digest of dense weights", digest.hexdigest())
    for rank, other in enumerate(digests):
        if other != digests[0]:
            raise HotrowError(
                f"the dense weights of rank {rank} differ from those of rank 0; all ranks need "
                "the same machine type and the same versions (report this if they have)"
            )
