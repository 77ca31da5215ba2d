"""The body of a request, read within a limit of length and a limit of time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from hotrow.serving.rest.body_memory import HeldBody

# Least rate of a body that takes longer than the base time.
_LEAST_BYTES_PER_SECOND = 1000


class BodyTooLongError(Exception):
    """A body has more bytes than the server takes."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"The request body is longer than {most_bytes} bytes; send less at a time, or start "
            "the server with a larger --rest_api_max_body_bytes"
        )


async def read_body(request: Request, held: HeldBody, most_bytes: int, seconds: float) -> bytes:
    """Returns the body as it was sent.

    Args:
        request: its body has not been read.
        held: counts it among all bodies.
        most_bytes: limit of the body's length.
        seconds: time for the body to arrive, plus one second for each 1000 bytes.

    Raises:
        BodyTooLongError: it is longer; not all of it has been read.
        BodiesTooLongError: all bodies together are too long; likewise.
        TimeoutError: it arrives too slowly.
        ClientDisconnect: the client has gone.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        if int(declared) > most_bytes:
            raise BodyTooLongError(most_bytes)
        held.check(int(declared))
    chunks: list[bytes] = []
    length = 0
    start = asyncio.get_running_loop().time()
    async with asyncio.timeout(seconds) as limit:
        async for chunk in request.stream():
            chunks.append(chunk)
            length += len(chunk)
            if length > most_bytes:
                raise BodyTooLongError(most_bytes)
            held.grow(len(chunk))
            limit.reschedule(start + seconds + length / _LEAST_BYTES_PER_SECOND)
    return b"".join(chunks)
