"""Calls of the control process: lengths and messages over a Unix socket, as control.proto says."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from hotrow.protos import control_pb2
from hotrow.serving.wire.status import Code, RequestError

_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
# An answer that has arrived is read even if the time is up: this process may have been stopped.
_LEAST_SECONDS = 0.001


def ask(
    path: Path, request: control_pb2.Request, timeout_seconds: float | None = None
) -> control_pb2.Reply:
    """Returns the answer to one call.

    Args:
        path: the socket.
        request: the call.
        timeout_seconds: limit of the whole call; None waits without a limit.

    Raises:
        RequestError: the call is refused.
        TimeoutError: the time is up.
        OSError: no process listens there, or it ended during the call.
    """
    end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(str(path))
        message = request.SerializeToString()
        connection.sendall(_LENGTH.pack(len(message)) + message)
        (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size, end))
        reply: control_pb2.Reply = control_pb2.Reply.FromString(_read(connection, size, end))
    if reply.code:
        raise RequestError(Code(reply.code), reply.message)
    return reply


def listener_of(path: Path) -> int:
    """Returns the number of the process that listens on a socket, whether it answers or not.

    Raises:
        OSError: no process listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(0)
        connection.connect(str(path))
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[0])


def _read(connection: socket.socket, count: int, end: float | None) -> bytes:
    parts = []
    while count > 0:
        if end is not None:
            connection.settimeout(max(_LEAST_SECONDS, end - time.monotonic()))
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionResetError("the process ended before it answered")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
