"""Calls of the control process: lengths and messages over a Unix socket, as control.proto says."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from hotrow.protos import control_pb2
from hotrow.serving.wire.status import Code, RequestError

_LENGTH = struct.Struct("<I")


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
        OSError: no process listens there, it ended during the call, or the time is up.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(str(path))
        message = request.SerializeToString()
        connection.sendall(_LENGTH.pack(len(message)) + message)
        (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
        reply: control_pb2.Reply = control_pb2.Reply.FromString(_read(connection, size))
    if reply.code:
        raise RequestError(Code(reply.code), reply.message)
    return reply


def _read(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count > 0:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionResetError("the process ended before it answered")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
