"""Exceptions of Hotrow: one root class; each class carries its exit code and its gRPC status.

A message states the error, the value, the legal set or range, and what to do.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class HotrowError(Exception):
    """Root of every error that Hotrow raises on purpose.

    Attributes:
        exit_code: exit code of the command line (1 failure, 2 usage).
        grpc_status: number of the gRPC status code in a server's answer.
        on_all_ranks: whether each rank of the run raises it, so that no rank needs to report it.
    """

    exit_code: int = 1
    grpc_status: int = 13  # INTERNAL
    on_all_ranks: bool = False


class InvalidArgumentError(HotrowError):
    """A value that the caller gave is not legal."""

    exit_code = 2
    grpc_status = 3


class DeadlineExceededError(HotrowError):
    """An operation exceeded its time limit."""

    grpc_status = 4


class NotFoundError(HotrowError):
    """The named object does not exist."""

    grpc_status = 5


class AlreadyExistsError(HotrowError):
    """The object to create exists already."""

    grpc_status = 6


class PermissionDeniedError(HotrowError):
    """The system denies this process access to a file or directory."""

    grpc_status = 7


class ResourceExhaustedError(HotrowError):
    """A limit (memory, disk, queue) was reached."""

    grpc_status = 8


class FailedPreconditionError(HotrowError):
    """The system is not in the state that the call requires."""

    grpc_status = 9


class FencedError(FailedPreconditionError):
    """Another process has taken over what this one was writing; it must end."""


class AbortedError(HotrowError):
    """Another process that the operation needs has ended."""

    grpc_status = 10


class OutOfRangeError(InvalidArgumentError):
    """A key or an index lies outside its declared bound."""

    grpc_status = 11


class UnimplementedError(HotrowError):
    """A legal request for a part that is not built yet."""

    exit_code = 2
    grpc_status = 12


class UnavailableError(HotrowError):
    """A resource (port, store, server) cannot be reached or used now."""

    grpc_status = 14


class DataLossError(HotrowError):
    """Data on disk or on the wire is damaged."""

    grpc_status = 15


class UnauthenticatedError(HotrowError):
    """A call has no valid token."""

    grpc_status = 16


_BY_STATUS: dict[int, type[HotrowError]] = {
    cls.grpc_status: cls
    for cls in (
        HotrowError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}


def from_status(code: int, message: str) -> HotrowError:
    """Returns the exception for a status code of the native core (gRPC's numbers)."""
    return _BY_STATUS.get(code, HotrowError)(message)


def is_full_disk(error: OSError) -> bool:
    """Returns whether a full file system, a quota, or a limit of the process refused a write."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def nearest(name: str, legal: Iterable[str]) -> str:
    """Returns " (did you mean 'x'?)" for the legal name closest to `name`, or ""."""
    close = difflib.get_close_matches(name, list(legal), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
