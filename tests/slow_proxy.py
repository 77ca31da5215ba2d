"""A TCP proxy whose answers arrive late: a store that is slow, and not away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from free_ports import free_port


class SlowProxy:
    """Forwards connections to a port of this machine, in a thread.

    Attributes:
        port: on which it listens.
        delay: seconds that each answer arrives late; may be changed at any time.
    """

    def __init__(self, to_port: int) -> None:
        self.port = free_port()
        self.delay = 0.0
        self._to_port = to_port
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._listening.wait()

    def close(self) -> None:
        """Ends all connections."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self._listening.set()
        await self._ended.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            await asyncio.gather(
                self._forward(reader, to_writer, late=False),
                self._forward(to_reader, writer, late=True),
            )

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool
    ) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                writer.write(data)

        sender = asyncio.create_task(send())
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    due.put_nowait((time.monotonic() + (self.delay if late else 0.0), data))
        finally:
            sender.cancel()
            writer.close()
