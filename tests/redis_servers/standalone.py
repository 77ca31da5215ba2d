"""A Redis server that stands alone: passwords, Unix socket, TLS, a limit of memory."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import redis
from certificates import Certificates
from free_ports import free_port
from redis_servers.process import RedisProcess, Setting
from redis_servers.tls import certificates_beside, tls_of_client, tls_settings


class RedisServer(RedisProcess):
    """See `RedisProcess`; for tests on one server.

    Attributes:
        url: as Hotrow takes it, without a password.
        certificates: with TLS: `ca.cert`, and `client.cert` and `client.key` when asked for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        password: str = "",
        users: Sequence[str] = (),
        unix_socket: bool = False,
        tls: bool = False,
        tls_clients: bool = False,
        maxmemory: str = "0",
        policy: str = "noeviction",
        settings: dict[str, Setting] | None = None,
    ) -> None:
        """Starts one.

        Args:
            folder: new; the Unix socket's path is short only if this one is.
            password: of the default user.
            users: ACL rules, `"hotrow on >secret ~* +@all"`.
            unix_socket: listens on nothing else.
            tls: speaks nothing else. tls_clients: and asks clients for certificates.
            maxmemory, policy: `maxmemory` and `maxmemory-policy`.
            settings: more lines of redis.conf.
        """
        port = 0 if unix_socket else free_port()
        every: dict[str, Setting] = {"port": 0 if tls else port}
        every |= {"maxmemory": maxmemory, "maxmemory-policy": policy}
        if password:
            every["requirepass"] = password
        self.password = password
        self.socket = folder / "s" if unix_socket else None
        if self.socket is not None:
            every["unixsocket"] = self.socket
        self.certificates: Certificates | None = None
        if tls:
            self.certificates = certificates_beside(folder)
            every |= {"tls-port": port} | tls_settings(self.certificates)
            every |= {"tls-auth-clients": "yes" if tls_clients else "no"}
        lines = "\n".join(f"user {rule}" for rule in users)
        super().__init__(folder, every | (settings or {}), lines=lines)
        scheme = "rediss" if tls else "redis"
        self.url = f"{scheme}://{self.address}"
        if self.socket is not None:
            self.url = f"redis+unix://{self.socket}"

    def client(self, database: int = 0) -> redis.Redis:
        """Returns a new client of the default user; close it."""
        where: dict[str, object] = {"host": "127.0.0.1", "port": self.port}
        if self.socket is not None:
            where = {"unix_socket_path": str(self.socket)}
        if self.certificates is not None:
            where |= tls_of_client(self.certificates)
        return redis.Redis(**where, password=self.password or None, db=database)

    def call(self, *command: object) -> object:
        """Returns the answer to a command."""
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def snapshot(self) -> Path:
        """Returns an RDB of its data, for `go_back`."""
        self.call("SAVE")
        copy = self.folder / f"{time.monotonic_ns()}.rdb"
        shutil.copy(self.folder / "dump.rdb", copy)
        return copy

    def go_back(self, snapshot: Path) -> None:
        """Kills it and starts it again with an earlier state, as after an outage."""
        self.kill()
        shutil.copy(snapshot, self.folder / "dump.rdb")
        self.restart()
