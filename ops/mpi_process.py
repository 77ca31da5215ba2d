"""MPI in this process: detection, initialisation, and the end of the process.

A rank that fails leaves the collectives of other ranks in flight, and their memory is freed. No
process may finalise MPI then: it would write to that memory, or wait for ever. Instead a process
aborts MPI, which ends all processes with the exit code of the error. It first waits a moment, so
that other ranks can report their errors.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path

from hotrow import _native
from hotrow.errors import FailedPreconditionError, HotrowError

_STARTED = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE")
_LINGER_SECONDS = 1.0
_STDERR = 2


def started_by_mpi() -> bool:
    """Returns whether MPI started this process as one of several."""
    if os.environ.get("PMI_SIZE") == "1":
        return False
    if any(name in os.environ for name in _STARTED):
        return True
    known = sys.modules.get("mpi4py.MPI")
    return known is not None and known.Is_initialized() and known.COMM_WORLD.Get_size() > 1


class MpiProcess:
    """MPI in this process, from its initialisation to its end; a singleton.

    Attributes:
        failed: the error of a failed rank; MPI is not finalised then.
    """

    def __init__(self) -> None:
        self.failed: BaseException | None = None
        self._open: set[str] = set()
        self._count = 0
        try:
            import mpi4py

            mpi4py.rc.finalize = False
            from mpi4py import MPI
        except (ImportError, RuntimeError) as err:
            raise FailedPreconditionError(
                f"this process was started by MPI, and MPI does not load: {err}; "
                "pip install mpi4py mpich"
            ) from err
        self._mpi = MPI
        atexit.register(self._end)

    @property
    def size(self) -> int:
        """The number of processes."""
        return int(self._mpi.COMM_WORLD.Get_size())

    def connect(self, timeout_seconds: float) -> str:
        """Returns the registry name of a new group of all processes. All processes must call it.

        Raises:
            FailedPreconditionError, UnimplementedError: this MPI or this build does not support it.
            DeadlineExceededError: other processes do not call it in time.
        """
        name = f"mpi-ranks-{self._count}"
        self._count += 1
        library = Path(sys.prefix, "lib", "libmpi.so.12")
        try:
            _native.create_mpi_ranks(name, str(library), timeout_seconds)
        except BaseException as err:
            self.failed = err
            raise
        self._open.add(name)
        return name

    def closed(self, name: str) -> None:
        """Notes that a group is no longer in use."""
        self._open.discard(name)

    def _end(self) -> None:
        for name in self._open:
            error = FailedPreconditionError("the program ended before it closed its ranks")
            self.failed = self.failed or error
            _native.Ranks(name).fail(error.grpc_status, str(error))
            _native.drop_ranks(name)
        if self.failed is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_LINGER_SECONDS)
            # The error is reported already; MPI would print its own line.
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
            self._mpi.COMM_WORLD.Abort(getattr(self.failed, "exit_code", HotrowError.exit_code))
        elif not self._mpi.Is_finalized():
            self._mpi.Finalize()
