"""This process as one of several ranks, if MPI has started it: threads, errors, the end."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from hotrow.cli.failures import exit_code_of
from hotrow.cli.invocation import Invocation
from hotrow.cli.launched import Launched
from hotrow.cli.quiet_start import import_tensorflow_quietly, quietly
from hotrow.config import ParallelConfig

if TYPE_CHECKING:
    from hotrow.ops.ranks import Ranks

# As MPICH, Open MPI and Slurm set it for their processes.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_ON_THIS_MACHINE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def started_ranks() -> int | None:
    """Returns the number of ranks that MPI started, with this one; None: MPI did not start it."""
    from hotrow.ops.mpi_process import started_by_mpi

    return _first_number(_SIZES) if started_by_mpi() else None


@contextlib.contextmanager
def this_rank(config: ParallelConfig, own_gpu: bool) -> Iterator[Ranks]:
    """A context with TensorFlow and the ranks; only rank 0 reports an error that ends it.

    Until the ranks are connected, each reports its own errors. By default the ranks of a machine
    share its cores: TensorFlow gets a rank's share of threads.

    Args:
        config: how long to wait for others, and how many there are.
        own_gpu: whether each rank sees only one of the machine's GPUs.

    Raises:
        FailedPreconditionError, UnimplementedError: MPI cannot be used here.
        DeadlineExceededError: other processes did not start in time.
    """
    alone = config.workers == 1
    launched = Launched(_first_number(_NUMBERS) or 0)
    here = _first_number(_ON_THIS_MACHINE) or config.workers
    cores = len(os.sched_getaffinity(0))
    ranks: Ranks | None = None
    try:
        # Which devices TensorFlow sees must be set before it opens them.
        threads = None if alone else max(1, cores // here)
        import_tensorflow_quietly(threads, open_devices=False)
        from hotrow.ops.ranks import start_ranks

        ranks = start_ranks(config.timeout_seconds, config.device_collectives)
        with quietly():
            if own_gpu:
                from hotrow.ops.own_gpu import take_own_gpu

                take_own_gpu(ranks)
            import tensorflow as tf

            tf.config.list_logical_devices()
        yield ranks
        ranks.close()
        launched.ended(0)
    except BaseException as err:
        code = exit_code_of(err)
        launched.ended(code)
        if ranks is None:
            raise
        with contextlib.suppress(Exception):
            ranks.close()
        if ranks.is_first:
            raise
        if click.get_current_context().ensure_object(Invocation).debug:
            traceback.print_exception(err)
        raise SystemExit(code) from None


def _first_number(names: tuple[str, ...]) -> int | None:
    """Returns the first of some variables of the environment that is a number."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)
