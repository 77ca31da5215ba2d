"""A Redis Cluster of three primaries with a replica each."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from certificates import Certificates
from free_ports import free_port
from redis_servers.process import RedisProcess, Setting
from redis_servers.tls import certificates_beside, tls_of_client, tls_settings

SLOTS = 16384
_POLL_SECONDS = 0.02


class RedisCluster:
    """The servers of a cluster; see `RedisProcess`.

    Attributes:
        nodes: at first three primaries, then their replicas in the same order.
        url: as Hotrow takes it.
        certificates: with TLS; clients are asked for theirs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replicas: bool = True,
        password: str = "",
        tls: bool = False,
        node_timeout_ms: int = 2000,
        settings: dict[str, Setting] | None = None,
        announced_ports: Sequence[int] = (),
        variables: Sequence[dict[str, str]] = (),
        started: Callable[[Sequence[int]], None] = lambda ports: None,
    ) -> None:
        """Starts one and waits until it is whole.

        Args:
            folder: new.
            replicas: of each primary one.
            password: of the default user. tls: speaks nothing else, and asks for certificates.
            node_timeout_ms: `cluster-node-timeout`.
            settings: more lines of redis.conf.
            announced_ports: of the nodes, where clients and replicas reach them instead.
            variables: of the nodes' environments.
            started: called with the nodes' own ports before they join.
        """
        self.password = password
        every: dict[str, Setting] = {"cluster-enabled": "yes"}
        every |= {"cluster-node-timeout": node_timeout_ms, "cluster-allow-replica-migration": "no"}
        every |= {"repl-ping-replica-period": 1, "cluster-config-file": "nodes.conf"}
        if password:
            every |= {"requirepass": password, "masterauth": password}
        self.certificates: Certificates | None = None
        if tls:
            self.certificates = certificates_beside(folder)
            every |= {"port": 0, "tls-cluster": "yes", "tls-replication": "yes"}
            every |= tls_settings(self.certificates)
        listen = "tls-port" if tls else "port"
        self.nodes: list[RedisProcess] = []
        self._ports: dict[int, int] = {}  # own ones by those that clients see
        try:
            for number in range(6 if replicas else 3):
                own: dict[str, Setting] = {listen: free_port(), "cluster-port": free_port()}
                port = int(own[listen])
                if announced_ports:
                    port = announced_ports[number]
                    bus = own["cluster-port"]
                    own |= {"cluster-announce-port": port, "cluster-announce-bus-port": bus}
                self._ports[port] = int(own[listen])
                all_settings = own | every | (settings or {})
                more = variables[number] if variables else None
                name = folder / f"node{number}"
                self.nodes.append(RedisProcess(name, all_settings, variables=more))
            started([node.port for node in self.nodes])
            self._join()
        except BaseException:
            self.kill()
            raise

    @property
    def url(self) -> str:
        scheme = "rediss" if self.certificates else "redis"
        hosts = ",".join(f"127.0.0.1:{port}" for port in list(self._ports)[:3])
        return f"{scheme}+cluster://{hosts}"

    def kill(self) -> None:
        """Ends all servers."""
        for node in self.nodes:
            node.kill()

    def call(self, node: RedisProcess, *command: Any) -> Any:
        """Returns the answer of one server to a command."""
        with contextlib.closing(self.client(node)) as client:
            return client.execute_command(*command)

    def primaries(self) -> list[RedisProcess]:
        """Returns the servers that hold slots and run."""
        return [node for node in self._running() if self.call(node, "ROLE")[0] == b"master"]

    def identity(self, node: RedisProcess) -> str:
        """Returns the name that the cluster has for a server."""
        return str(self.call(node, "CLUSTER", "MYID").decode())

    def primary_of(self, slot: int) -> RedisProcess:
        """Returns the server that holds a slot."""
        for node, first, last in self.slot_ranges():
            if first <= slot <= last:
                return node
        raise LookupError(f"no node holds slot {slot}")

    def slot_ranges(self) -> list[tuple[RedisProcess, int, int]]:
        """Returns (primary, first slot, last slot), sorted by slot."""
        by_port = {node.port: node for node in self.nodes}
        ranges = sorted(self._held(self._running()[0]))
        return [(by_port[port], first, last) for first, last, port in ranges]

    def kill_primary(self, number: int = 0) -> RedisProcess:
        """Kills a primary and returns it; `restart` brings it back as a replica."""
        node = self.primaries()[number]
        node.kill()
        return node

    def move_slots(
        self, count: int, source: RedisProcess, target: RedisProcess, seconds: float = 30.0
    ) -> None:
        """Moves the first slots of a primary, with their keys, to another, while both serve."""
        self.wait_healthy(seconds)  # or redis-cli refuses, right after another move
        flags = {"from": self.identity(source), "to": self.identity(target), "slots": count}
        arguments = [part for name, value in flags.items() for part in (f"--cluster-{name}", value)]
        access = ["-a", self.password, "--no-auth-warning"] if self.password else []
        if self.certificates is not None:
            home = self.certificates.folder
            access += ["--tls", "--cacert", str(home / "ca.cert")]
            access += ["--cert", str(home / "client.cert"), "--key", str(home / "client.key")]
        command = ["redis-cli", *access, "--cluster", "reshard", source.address, "--cluster-yes"]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=4 * seconds,
        )
        if done.returncode:
            raise RuntimeError(f"redis-cli: {done.stdout[-2000:]} {done.stderr}")

    def close_slots(self) -> None:
        """Takes moves of slots back that were interrupted: their holders keep them.

        `redis-cli --cluster fix` leaves a slot open if both nodes have one of its keys, as after a
        restore in the midst of a move; after a failover, too, it may choose the other node.
        """
        imported = [(node, slot) for node in self._running() for slot in self._open(node, "<")]
        for node, slot in imported:  # it learns of no failover of the holder meanwhile
            self.call(node, "CLUSTER", "SETSLOT", slot, "STABLE")
        self.wait_healthy()
        for node, slot in imported:
            holder = self.primary_of(slot)
            if holder is not node and node in self.primaries():
                self._hand_back(slot, node, holder)
        for node in self._running():
            for slot in self._open(node, ">"):  # until now it led clients to keys that had moved
                self.call(node, "CLUSTER", "SETSLOT", slot, "STABLE")

    def open_slots(self) -> bool:
        """Returns whether a slot is between two nodes."""
        return any(self._open(node, either) for node in self._running() for either in "<>")

    @contextlib.contextmanager
    def half_moved(self, source: RedisProcess, target: RedisProcess) -> Iterator[int]:
        """Moves the primary's slot with the most keys; inside, half of them are still there.

        Yields the number of keys in the slot.
        """
        tags = [key.split(b"}")[0] for key in self.call(source, "KEYS", "*{*}*")]
        full = max(set(tags), key=tags.count) + b"}"
        slot = self.call(source, "CLUSTER", "KEYSLOT", full)
        self.call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.identity(source))
        self.call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.identity(target))
        keys = sorted(self.call(source, "CLUSTER", "GETKEYSINSLOT", slot, 1 << 20))
        half = len(keys) // 2
        self._migrate(source, target, keys[:half])
        yield len(keys)
        self._migrate(source, target, keys[half:])
        others = [node for node in self.primaries() if node not in (source, target)]
        for node in (target, source, *others):
            self.call(node, "CLUSTER", "SETSLOT", slot, "NODE", self.identity(target))
        self.wait_healthy()

    def wait_healthy(self, seconds: float = 30.0) -> None:
        """Waits until all running servers agree that every slot is held by one that runs."""
        end = time.monotonic() + seconds
        while not self._healthy():
            if time.monotonic() > end:
                answers = [self.call(node, "CLUSTER", "NODES") for node in self._running()]
                raise TimeoutError(f"the cluster is not whole: {answers}")
            time.sleep(_POLL_SECONDS)

    def flush(self) -> None:
        """Removes all keys and functions."""
        for node in self.primaries():
            self.call(node, "FLUSHALL")
            self.call(node, "FUNCTION", "FLUSH")

    def client(self, node: RedisProcess) -> redis.Redis:
        """Returns a new client of one server; close it."""
        # The first slot map of a new cluster comes over a plain connection.
        tls: dict[str, Any] = tls_of_client(self.certificates) if self.certificates else {}
        return redis.Redis("127.0.0.1", node.port, password=self.password or None, **tls)

    def _open(self, node: RedisProcess, arrow: str) -> list[int]:
        """Returns the slots that a node imports ("<") or migrates (">")."""
        nodes = self.call(node, "CLUSTER", "NODES").decode()
        return [int(slot) for slot in re.findall(rf"\[(\d+)-{arrow}-", nodes)]

    def _hand_back(self, slot: int, node: RedisProcess, holder: RedisProcess) -> None:
        """Moves keys to the holder of their slot, and removes those that it has itself."""
        self.call(node, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.identity(holder))
        for key in self.call(node, "CLUSTER", "GETKEYSINSLOT", slot, 1 << 20):
            with contextlib.suppress(redis.ResponseError):  # it has one
                self._migrate(node, holder, [key])
        left = self.call(node, "CLUSTER", "GETKEYSINSLOT", slot, 1 << 20)
        if left:
            with contextlib.closing(self.client(node)) as client:
                pipe = client.pipeline(transaction=False)
                pipe.execute_command("ASKING")
                pipe.unlink(*left)
                pipe.execute()
        self.call(node, "CLUSTER", "SETSLOT", slot, "STABLE")

    def _migrate(self, source: RedisProcess, target: RedisProcess, keys: list[bytes]) -> None:
        auth = ["AUTH", self.password] if self.password else []
        to = ["MIGRATE", "127.0.0.1", target.port, "", 0, 10_000, *auth, "KEYS"]
        self.call(source, *to, *keys)

    def _running(self) -> list[RedisProcess]:
        return [node for node in self.nodes if node.process.poll() is None]

    def _join(self) -> None:
        """Does what `redis-cli --cluster create` does, without its pauses."""
        first = self.nodes[0]
        for i, node in enumerate(self.nodes[:3]):
            self.call(node, "CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            slots = SLOTS * i // 3, SLOTS * (i + 1) // 3 - 1
            self.call(node, "CLUSTER", "ADDSLOTSRANGE", *slots)
        for node in self.nodes[1:]:
            bus = node.settings["cluster-port"]
            self.call(first, "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        names = [self.identity(node) for node in self.nodes]
        self._wait(lambda: all(self._knows(node, names) for node in self.nodes))
        for primary, replica in zip(names, self.nodes[3:], strict=False):
            self.call(replica, "CLUSTER", "REPLICATE", primary)
        self.wait_healthy()

    def _knows(self, node: RedisProcess, names: list[str]) -> bool:
        lines = self.call(node, "CLUSTER", "NODES").decode().splitlines()
        known = {line.split()[0] for line in lines if "handshake" not in line}
        return known == set(names)

    def _wait(self, done: Any, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError("the servers of the cluster do not meet")
            time.sleep(_POLL_SECONDS)

    def _healthy(self) -> bool:
        running = self._running()
        ports = {node.port for node in running}
        maps = set()
        replicas = 0
        for node in running:
            info = self.call(node, "CLUSTER", "INFO").decode()
            if "cluster_state:ok" not in info:
                return False
            held = sorted(self._held(node))
            if {port for _, _, port in held} - ports:
                return False
            maps.add(tuple(held))
            role = self.call(node, "ROLE")
            if role[0] == b"slave":
                replicas += 1
                if role[3] != b"connected":
                    return False
        # All replicas are in the map, so that a failover can promote them. There may be a fourth
        # primary: one that a failover left with the slots that were just moved to it.
        return len(maps) == 1 and self._replicas_in_map(running[0]) == replicas

    def _held(self, node: RedisProcess) -> Iterator[tuple[int, int, int]]:
        for first, last, primary, *_ in self.call(node, "CLUSTER", "SLOTS"):
            yield first, last, self._ports[primary[1]]

    def _replicas_in_map(self, node: RedisProcess) -> int:
        ranges = self.call(node, "CLUSTER", "SLOTS")
        return len({replica[1] for _, _, _, *replicas in ranges for replica in replicas})
