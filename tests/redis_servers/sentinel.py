"""Redis Sentinel: a primary, a replica, and three sentinels that watch them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import redis
from free_ports import free_port
from redis_servers.process import RedisProcess, Setting

SERVICE = "rows"


class RedisSentinel:
    """The servers; see `RedisProcess`.

    Attributes:
        nodes: at first the primary and its replica.
        sentinels: three.
        url: as Hotrow takes it.
    """

    def __init__(self, folder: Path, *, password: str = "", down_after_ms: int = 1000) -> None:
        """Starts them and waits until the sentinels know each other and the replica."""
        self.password = password
        own: dict[str, Setting] = {"repl-ping-replica-period": 1}
        if password:
            own |= {"requirepass": password, "masterauth": password}
        self.nodes: list[RedisProcess] = []
        self.sentinels: list[RedisProcess] = []
        try:
            primary = RedisProcess(folder / "node0", own | {"port": free_port()})
            self.nodes.append(primary)
            source = f"127.0.0.1 {primary.port}"
            copy = own | {"port": free_port(), "replicaof": source}
            self.nodes.append(RedisProcess(folder / "node1", copy))
            lines = [
                f"sentinel monitor {SERVICE} {source} 2",
                f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
                f"sentinel failover-timeout {SERVICE} 5000",
                *([f"sentinel auth-pass {SERVICE} {password}"] if password else []),
            ]
            for number in range(3):
                name = folder / f"sentinel{number}"
                port: dict[str, Setting] = {"port": free_port()}
                text = "\n".join(lines)
                self.sentinels.append(RedisProcess(name, port, lines=text, sentinel=True))
            self.wait_healthy()
        except BaseException:
            self.kill()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def kill(self) -> None:
        """Ends all servers."""
        for node in (*self.nodes, *self.sentinels):
            node.kill()

    def call(self, node: RedisProcess, *command: Any) -> Any:
        """Returns the answer of a server or sentinel to a command."""
        password = self.password if node in self.nodes else ""
        client = redis.Redis("127.0.0.1", node.port, password=password or None)
        with contextlib.closing(client):
            return client.execute_command(*command)

    def primary(self) -> RedisProcess:
        """Returns the server that all sentinels take for the primary."""
        ports = set()
        for sentinel in self.sentinels:
            _, port = self.call(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            ports.add(int(port))
        if len(ports) > 1:
            raise LookupError(f"the sentinels do not agree: {ports}")
        return next(node for node in self.nodes if node.port in ports)

    def kill_primary(self) -> RedisProcess:
        """Kills the primary and returns it; the replica takes over in a second or two."""
        node = self.primary()
        node.kill()
        return node

    def set_down_after(self, seconds: int) -> None:
        """Sets how long a server may not answer before the sentinels take it for down."""
        option = ("down-after-milliseconds", 1000 * seconds)
        for sentinel in self.sentinels:
            self.call(sentinel, "SENTINEL", "SET", SERVICE, *option)

    def wait_healthy(self, seconds: float = 30.0) -> None:
        """Waits until the primary runs and every server that runs follows it."""
        end = time.monotonic() + seconds
        while not self._healthy():
            if time.monotonic() > end:
                raise TimeoutError("the sentinels do not come to an agreement")
            time.sleep(0.02)

    def _healthy(self) -> bool:
        try:
            primary = self.primary()
        except LookupError:
            return False
        if primary.process.poll() is not None or self.call(primary, "ROLE")[0] != b"master":
            return False
        for node in self.nodes:
            if node is primary or node.process.poll() is not None:
                continue
            role = self.call(node, "ROLE")
            if role[0] != b"slave" or role[2] != primary.port or role[3] != b"connected":
                return False
        for sentinel in self.sentinels:
            answer = self.call(sentinel, "SENTINEL", "MASTER", SERVICE)
            if int(answer[b"num-other-sentinels"]) != 2 or int(answer[b"num-slaves"]) != 1:
                return False
        return True
