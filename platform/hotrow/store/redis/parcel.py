"""Commands to send to one slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Parcel:
    """Commands for keys of one slot, in the wire format.

    They may be sent again after a lost connection, so each must be idempotent.

    Attributes:
        slot: slot of their keys.
        commands: number of commands, and so of answers.
        payload: RESP arrays, one after the other.
        answer_bytes: approximate size of the answers.
    """

    slot: int
    commands: int
    payload: bytes
    answer_bytes: int = 0

    @property
    def weight(self) -> int:
        """Bytes that it occupies in the server's and the sockets' buffers."""
        return max(len(self.payload), self.answer_bytes)


def packed(*parts: bytes | str | int) -> bytes:
    """Returns a command as a RESP array."""
    pieces = [b"*%d\r\n" % len(parts)]
    for part in parts:
        encoded = part if isinstance(part, bytes) else str(part).encode()
        pieces += (b"$%d\r\n" % len(encoded), encoded, b"\r\n")  # copied once, by the join
    return b"".join(pieces)


def unpacked(payload: bytes) -> Iterator[list[bytes]]:
    """Yields the commands of a payload."""
    at = 0
    while at < len(payload):
        end = payload.index(b"\r\n", at)
        parts = []
        count, at = int(payload[at + 1 : end]), end + 2
        for _ in range(count):
            end = payload.index(b"\r\n", at)
            length = int(payload[at + 1 : end])
            parts.append(payload[end + 2 : end + 2 + length])
            at = end + 2 + length + 2
        yield parts
