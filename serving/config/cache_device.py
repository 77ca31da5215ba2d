"""The GPU of `--cache_device`, as this machine has it."""

from __future__ import annotations

import dataclasses
import logging

from hotrow import _native
from hotrow.errors import FailedPreconditionError
from hotrow.serving.config.row_options import RowOptions

_LOG = logging.getLogger(__name__)


def on_this_machine(rows: RowOptions) -> RowOptions:
    """Returns the options with `auto` replaced by "cpu" when there is no GPU.

    Args:
        rows: how rows are read.

    Raises:
        FailedPreconditionError: a GPU is named that is not there, or the core was built without
            CUDA.
    """
    if rows.gpu is None:
        return rows
    try:
        _native.check_serving_gpu(rows.gpu)
    except FailedPreconditionError as err:
        if rows.cache_device != "auto":
            raise FailedPreconditionError(f"--cache_device={rows.cache_device}: {err}") from None
        _LOG.info(f"--cache_device=auto: rows stay in memory: {err}")
        return dataclasses.replace(rows, cache_device="cpu", gpu_cache_bytes=0)
    return rows
