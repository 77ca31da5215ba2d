"""The ranks of a run: processes that train one model together, as one process would (design 0009).

All ranks make the same calls in the same order. R ranks.
"""

from __future__ import annotations

import functools
import itertools
import json
from types import TracebackType
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.ops.device_collectives import DEVICE_COLLECTIVES, nccl_library
from hotrow.ops.mpi_process import MpiProcess, started_by_mpi
from hotrow.spec.checks import require_one_of

_Float = TypeVar("_Float", np.float32, np.float64)
_Array: TypeAlias = npt.NDArray[np.generic]
_group_numbers = itertools.count()


class Ranks:
    """This rank's place among R, and collectives over all ranks in host memory.

    When a rank fails, all others raise its error, in their current collective or the next one: the
    class of `hotrow.errors` with its code, and a message that begins with "rank 1: ". A rank that
    waits longer than the timeout raises DeadlineExceededError with the names of the missing ranks;
    so do all others. `what` names the call for such messages, and is the same on all ranks. Use a
    `Ranks` as a context manager: it reports an exception to the other ranks, and waits for all at
    the end.

    Attributes:
        rank: 0 to R - 1.
        size: R.
        handle: its name in the native registry, for ops; "" when R is 1 without MPI.
    """

    def __init__(self, handle: str = "", process: MpiProcess | None = None) -> None:
        self.handle = handle
        self._process = process
        self._native = _native.Ranks(handle) if handle else None
        self.rank = self._native.rank if self._native else 0
        self.size = self._native.size if self._native else 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which does the work that is done once."""
        return self.rank == 0

    def all_gather(self, array: _Array, what: str) -> list[_Array]:
        """Returns the arrays of all ranks: [N_r, ...]; N_r may differ between ranks.

        Raises:
            InvalidArgumentError: types, or shapes after the first axis, differ; raised on all
                ranks.
        """
        if self._native is None:
            return [array]
        own = np.frombuffer(_as_bytes(array), np.uint8)
        arrays = [_from_bytes(t.tobytes()) for t in self._native.all_gather(own, what)]
        for rank, other in enumerate(arrays):
            if other.dtype != arrays[0].dtype or other.shape[1:] != arrays[0].shape[1:]:
                raise InvalidArgumentError(
                    f'all_gather of "{what}": rank 0 has {_kind_of(arrays[0])}, rank {rank} '
                    f"{_kind_of(other)}; only the first axis may differ"
                )
        return arrays

    def all_reduce(self, array: npt.NDArray[_Float], what: str) -> npt.NDArray[_Float]:
        """Returns the sum over ranks, in the order of the ranks: the same bits on all.

        Args:
            array: float32 or float64, of the same shape on all ranks.
            what: for messages.

        Raises:
            InvalidArgumentError: another type; or sizes or types differ; raised on all ranks.
        """
        if array.dtype not in (np.float32, np.float64):
            raise InvalidArgumentError(
                f'all_reduce of "{what}": type {array.dtype}; legal: float32, float64'
            )
        summed = np.array(array, order="C")
        if self._native is not None:
            flat = summed.reshape(-1)
            if flat.dtype == np.float32:
                self._native.all_reduce_floats(flat.view(np.float32), what)
            else:
                self._native.all_reduce_doubles(flat.view(np.float64), what)
        return summed

    def broadcast(self, data: bytes | None, what: str) -> bytes:
        """Returns the bytes of rank 0 on every rank; the others pass None."""
        if self.is_first and data is None:
            raise InvalidArgumentError(f'broadcast of "{what}": rank 0 has nothing; it must')
        given = (data or b"") if self.is_first else b""
        return given if self._native is None else self._native.broadcast(given, what)

    def barrier(self, what: str) -> None:
        """Returns when all ranks have called it."""
        if self._native is not None:
            self._native.barrier(what)

    def fail(self, error: BaseException) -> None:
        """Reports to all ranks that this one cannot continue; only the first error is kept."""
        if self._native is None:
            return
        if self._process is not None:
            self._process.failed = error
        if isinstance(error, HotrowError):
            self._native.fail(error.grpc_status, str(error))
        else:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self._native.fail(HotrowError.grpc_status, text)

    @property
    def device_collectives(self) -> str:
        """Transport of GPU data: "nccl", "host", "threads" (one GPU); "" before the first use."""
        return "" if self._native is None else self._native.device

    def stage_counts(self) -> dict[str, dict[str, int]]:
        """Returns `calls`, `bytes_sent`, `bytes_received`, `nanoseconds` by stage of dispatch."""
        return {} if self._native is None else self._native.counts()

    def close(self) -> None:
        """Waits for all ranks, if they are processes, and leaves the group; idempotent.

        Raises:
            HotrowError: another rank failed, or does not call it in time.
        """
        if self._native is None:
            return
        try:
            if self._process is not None and self._process.failed is None:
                self._native.barrier("the end of the run")
        except BaseException as err:
            if self._process is not None:
                self._process.failed = err
            raise
        finally:
            self._native = None
            _native.drop_ranks(self.handle)
            if self._process is not None:
                self._process.closed(self.handle)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)
        self.close()


def _as_bytes(array: _Array) -> bytes:
    """Returns the type and shape as a line of JSON, then the values."""
    head = json.dumps([array.dtype.str, array.shape])
    return head.encode() + b"\n" + array.tobytes()


def _from_bytes(data: bytes) -> _Array:
    """Returns the array that `_as_bytes` wrote.

    `np.load` parses its header with `ast`, which fails at times in Python 3.11 when ranks that are
    threads of one process call it together.
    """
    head, values = data.split(b"\n", 1)
    dtype, shape = json.loads(head)
    return np.frombuffer(values, dtype).reshape(shape).copy()


def _kind_of(array: _Array) -> str:
    return f"{array.dtype} [{', '.join(['N', *map(str, array.shape[1:])])}]"


LONE = Ranks()
"""The only rank of a run that needs no MPI."""


@functools.cache
def _mpi_process() -> MpiProcess:
    return MpiProcess()


def start_ranks(timeout_seconds: float, device_collectives: str = "auto") -> Ranks:
    """Returns this process's rank among those that MPI started together; LONE if there are none.

    Args:
        timeout_seconds: longest wait for other ranks, in each collective.
        device_collectives: how ranks exchange data on their GPUs, one of `DEVICE_COLLECTIVES`:
            "nccl" needs a GPU for each rank, "host" copies through RAM, "auto" uses NCCL where
            possible.

    Raises:
        InvalidArgumentError: an unknown value of `device_collectives`.
        FailedPreconditionError, UnimplementedError: MPI cannot be used here.
        DeadlineExceededError: the other processes did not start in time.
    """
    require_one_of("device_collectives", device_collectives, DEVICE_COLLECTIVES)
    if not started_by_mpi():
        return LONE
    process = _mpi_process()
    if process.size == 1:
        return LONE
    name = process.connect(timeout_seconds)
    _native.Ranks(name).set_device(
        _native.NUMBERS["device_collectives"][device_collectives], nccl_library(), timeout_seconds
    )
    return Ranks(name, process)


def thread_ranks(count: int, timeout_seconds: float) -> list[Ranks]:
    """Returns ranks 0 to `count` - 1 of one group in this process, each for a thread of its own.

    Raises:
        InvalidArgumentError: less than one rank, or a timeout that is not positive.
    """
    group = next(_group_numbers)
    names = [f"thread-ranks-{group}-{rank}" for rank in range(count)]
    _native.create_thread_ranks(names, timeout_seconds)
    return [Ranks(name) for name in names]
