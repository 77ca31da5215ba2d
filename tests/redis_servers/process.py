"""A real `redis-server` process in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from children import start_child

READY_SECONDS = 30.0
_POLL_SECONDS = 0.01

Setting = str | int | Path


class RedisProcess:
    """A server that saves nothing by itself, which ends with this process at the latest.

    Attributes:
        folder: where it writes `log`.
        settings: of redis.conf; a change counts from the next start.
        port: plain TCP or TLS; 0: only a Unix socket.
        process: of the operating system.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Setting],
        *,
        lines: str = "",
        sentinel: bool = False,
        variables: dict[str, str] | None = None,
    ) -> None:
        """Starts one.

        Args:
            folder: new.
            settings: of redis.conf. lines: more of them.
            sentinel: whether it is a sentinel.
            variables: of its environment, beside those of this process.
        """
        folder.mkdir(parents=True)
        self.folder = folder
        own = {"bind": "127.0.0.1", "dir": folder, "logfile": folder / "log"}
        if not sentinel:
            own |= {"save": '""', "appendonly": "no", "repl-diskless-sync-delay": 0}
        self.settings: dict[str, Setting] = {**own, **settings}
        self._variables = {**os.environ, **(variables or {})}
        self._mode = ["--sentinel"] if sentinel else []
        self._ready = "Sentinel ID is" if sentinel else "eady to accept connections"
        self._file = folder / "redis.conf"
        text = "\n".join(f"{name} {value}" for name, value in self.settings.items())
        self._file.write_text(f"{text}\n{lines}\n")  # Sentinel goes on writing it
        self.port = int(self.settings.get("tls-port", self.settings.get("port", 0)))
        self.process = self._start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Starts it again after `kill` or `stop`: empty, or with the `dump.rdb` in its folder."""
        self.process = self._start()

    def kill(self) -> None:
        """Kills it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it as its user would."""
        self.process.terminate()
        self.process.wait()

    def freeze(self) -> None:
        """Stops its clock; it keeps connections and answers nothing until `thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def _start(self) -> subprocess.Popen[bytes]:
        before = len(self.log())
        process = start_child(
            ["redis-server", self._file, *self._mode],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._variables,
            restore_signals=False,  # a write beyond a limit of its files fails, and kills nothing
        )
        end = time.monotonic() + READY_SECONDS
        while self._ready not in self.log()[before:]:
            late = time.monotonic() > end
            if late or process.poll() is not None:
                process.kill()
                process.wait()
                raise RuntimeError(f"redis-server did not start: {self.log()[before:]}")
            time.sleep(_POLL_SECONDS)
        return process
