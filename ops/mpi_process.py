"""MPI in this process: who started it, how it begins, and how the process may end.

A failure of one rank leaves collectives of the others in flight, whose memory is gone, so that
nobody may finalise MPI any more: it would write there, or wait for ever. Then a process aborts MPI
in its place, which ends all processes with the exit code of the error. It waits a moment before, as
others may still have to say why they end.
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
    """Returns whether this process is one of several that MPI started."""
    if os.environ.get("PMI_SIZE") == "1":
        return False
    if any(name in os.environ for name in _STARTED):
        return True
    known = sys.modules.get("mpi4py.MPI")
    return known is not None and known.Is_initialized() and known.COMM_WORLD.Get_size() > 1


class MpiProcess:
    """MPI of this process, from its initialisation to its end; there is one.

    Attributes:
        failed: what a rank failed with; MPI is not finalised then.
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
        """Returns the name of a new group of all processes in the native registry. All must call.

        Raises:
            FailedPreconditionError, UnimplementedError: not with this MPI, or not with this build.
            DeadlineExceededError: the others do not come.
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
        """Says that a group is not used any more."""
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
            # The error was reported; MPI would add a line about itself.
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
            self._mpi.COMM_WORLD.Abort(getattr(self.failed, "exit_code", HotrowError.exit_code))
        elif not self._mpi.Is_finalized():
            self._mpi.Finalize()
