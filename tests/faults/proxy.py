"""TCP proxies in front of the nodes of a store, in a process of their own.

    python proxy.py PORT:TARGET ...

Each line of the input, `PORT MODE [SECONDS]`, changes one of them:

- `pass`: passes bytes on, as at first;
- `delay SECONDS`: passes each piece on later;
- `drop`: passes nothing on, also not that a side has closed; nothing is lost when it ends;
- `cut`: resets all connections, and new ones at once;
- `half-close`: ends the stream to the clients of all connections, and passes on what they send.

The process ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys

_PIECE = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing drops what is not sent


class Proxy:
    """Passes connections to a port on to another one.

    Args:
        port: that it listens on.
        target: of the node.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self._mode, self._delay = "pass", 0.0
        self._passes = asyncio.Event()
        self._passes.set()
        self._clients: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Begins to take connections."""
        # A backlog as Redis has: while nothing is taken, clients connect all the same.
        await asyncio.start_server(self._take, "127.0.0.1", self._port, backlog=511)

    def change(self, mode: str, delay: float = 0.0) -> None:
        """Does as the line says."""
        if mode == "half-close":
            for client in self._clients:
                with contextlib.suppress(OSError, RuntimeError):
                    client.write_eof()
            return
        self._mode, self._delay = mode, delay
        if mode == "drop":
            self._passes.clear()
        else:
            self._passes.set()
        if mode == "cut":
            for client in self._clients:
                _reset(client)

    async def _take(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            _reset(client)
            return
        await self._passes.wait()
        try:
            from_node, node = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(client)
            return
        self._clients.add(client)
        try:
            await asyncio.gather(self._pump(reader, node), self._pump(from_node, client))
        finally:
            self._clients.discard(client)
            for writer in (node, client):
                writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one direction on until it ends."""
        # One side may be gone, or have got its end by `half-close`.
        with contextlib.suppress(OSError, RuntimeError):
            while piece := await reader.read(_PIECE):
                await self._passes.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(piece)
                await writer.drain()
        await self._passes.wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


def _reset(client: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, AttributeError):
        client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.transport.abort()


async def _main(pairs: list[str]) -> None:
    proxies = {}
    for pair in pairs:
        port, target = map(int, pair.split(":"))
        proxies[port] = Proxy(port, target)
        await proxies[port].listen()
    print("ready", flush=True)
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await lines.readline():
        port, mode, *delay = line.decode().split()
        proxies[int(port)].change(mode, *map(float, delay))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
