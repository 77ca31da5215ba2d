"""Status of a refused request: gRPC's codes and the one exception that carries any of them."""

from __future__ import annotations

import enum
import logging

from hotrow.errors import HotrowError

# A longer message is cut here, as TF Serving's grpc_status_util.cc does.
MESSAGE_LIMIT_CHARS = 1024
_CUT_MARK = "...TRUNCATED"


class Code(enum.IntEnum):
    """gRPC's status codes; the names are the ones in TF Serving's status JSON."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RequestError(HotrowError):
    """A request that cannot be answered.

    Attributes:
        code: the gRPC status code that the client gets.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.grpc_status = int(code)


def invalid(message: str) -> RequestError:
    """Returns an INVALID_ARGUMENT error with this text."""
    return RequestError(Code.INVALID_ARGUMENT, message)


def as_request_error(error: Exception) -> RequestError:
    """Returns the status that a client gets for any exception.

    An unforeseen one is INTERNAL, and its traceback is logged.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, HotrowError):
        return RequestError(Code(error.grpc_status), str(error))
    logging.getLogger(__name__).error("unforeseen error", exc_info=error)
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")


def cut_message(message: str) -> str:
    """Returns the message, cut to MESSAGE_LIMIT_CHARS and marked when it is longer."""
    if len(message) <= MESSAGE_LIMIT_CHARS:
        return message
    return message[:MESSAGE_LIMIT_CHARS] + _CUT_MARK
