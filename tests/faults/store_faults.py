"""Faults of the nodes of a Redis Cluster with an append-only file."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from full_disk import fill_disk_of, free_disk_of
from redis_servers.cluster import RedisCluster
from redis_servers.process import RedisProcess

SETTINGS = {"appendonly": "yes", "appendfsync": "always"}
"""So that a node that is killed has all that it acknowledged."""
_MOVE_SECONDS = 2.0  # until the cluster must be whole, before slots are moved
_SNAPSHOTS = 4  # that are kept of a node


class StoreFaults:
    """Does them, one at a time or several at once.

    Args:
        cluster: three primaries and three replicas.
    """

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._snapshots: dict[int, list[Path]] = {}
        self._starting = threading.Lock()

    def take_snapshots(self) -> None:
        """Keeps the append-only file of each primary, for `go_back`."""
        for node in self._primaries():
            copy = node.folder / f"snapshot-{time.monotonic_ns()}"
            # A file that grows meanwhile has a torn tail, as after an outage.
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(node.folder / "appendonlydir", copy)
                if not _has_all_files(copy):
                    continue
                kept = self._snapshots.setdefault(node.port, [])
                kept.append(copy)
                if len(kept) > _SNAPSHOTS:
                    shutil.rmtree(kept.pop(0))

    def kill(self, target: int, lasts: float) -> None:
        """Kills a primary; a replica takes over if it is away for longer than the node timeout."""
        node = self._node(target)
        if node is None:
            return
        node.kill()
        time.sleep(lasts)
        self._start(node)

    def freeze(self, target: int, lasts: float) -> None:
        """Stops a primary's clock."""
        node = self._node(target)
        if node is None:
            return
        node.freeze()
        try:
            time.sleep(lasts)
        finally:
            node.thaw()

    def failover(self, target: int, lasts: float) -> None:
        """Lets a replica take over that has received nothing for a while."""
        primaries = self._primaries()
        replicas = [node for node in self._running() if node not in primaries]
        if not replicas:
            return
        replica = replicas[target % len(replicas)]
        with self._passing():
            # Its primary asks for no password, so it refuses this one.
            self._cluster.call(replica, "CONFIG", "SET", "masterauth", "none")
            self._cluster.call(replica, "CLIENT", "KILL", "TYPE", "master")
        time.sleep(lasts)
        with self._passing():
            self._cluster.call(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
        self._let_follow(replica)

    def go_back(self, target: int, lasts: float) -> None:
        """Kills a primary and starts it again with its data of some seconds before."""
        node = self._node(target)
        if node is not None:
            self._go_back([node])

    def restore(self, target: int, lasts: float) -> None:
        """Does the same with all primaries, as from a backup of all nodes."""
        self._go_back(self._primaries())

    def move_slots(self, target: int, lasts: float) -> None:
        """Moves slots from one primary to the next."""
        primaries = self._primaries()
        if len(primaries) < 3:
            return
        source, to = primaries[target % 3], primaries[(target + 1) % 3]
        # The cluster refuses while another fault lasts.
        with contextlib.suppress(Exception):
            self._cluster.move_slots(200, source, to, _MOVE_SECONDS)

    def fill_node_disk(self, target: int, lasts: float) -> None:
        """Lets a primary's append-only file grow no more: it refuses writes until it may again."""
        node = self._node(target)
        if node is None:
            return
        files = [path.stat().st_size for path in node.folder.glob("appendonlydir/*.incr.aof")]
        with self._passing():
            # With `always` the node would end, as by `kill`.
            self._cluster.call(node, "CONFIG", "SET", "appendfsync", "everysec")
            fill_disk_of(node.process.pid, max(files, default=0))
        time.sleep(lasts)
        self._give_room(node)

    def fill_node_memory(self, target: int, lasts: float) -> None:
        """Lets a primary take no more: `maxmemory` is reached, and nothing is evicted."""
        node = self._node(target)
        if node is None:
            return
        with self._passing():
            self._cluster.call(node, "CONFIG", "SET", "maxmemory", 1)
        time.sleep(lasts)
        self._give_room(node)

    def state(self) -> list[str]:
        """Returns what each node knows of the cluster, as text."""
        lines = []
        for node in self._cluster.nodes:
            lines.append(f"{node.folder.name} ({node.port}):")
            try:
                lines += self._cluster.call(node, "CLUSTER", "NODES").decode().splitlines()
            except (redis.RedisError, OSError) as err:
                lines += [f"{type(err).__name__}: {err}", *node.log().splitlines()[-5:]]
        return lines

    def lift(self) -> None:
        """Starts and thaws what is still away."""
        for node in self._cluster.nodes:
            self._start(node)
            node.thaw()
            self._give_room(node)
            self._let_follow(node)
        # A move that another fault has ended leaves a slot between two nodes, for ever.
        with contextlib.suppress(Exception):
            if self._cluster.open_slots():
                self._cluster.close_slots()

    def _give_room(self, node: RedisProcess) -> None:
        with self._passing():
            free_disk_of(node.process.pid)
            self._cluster.call(node, "CONFIG", "SET", "maxmemory", 0, "appendfsync", "always")

    def _let_follow(self, node: RedisProcess) -> None:
        with self._passing():
            self._cluster.call(node, "CONFIG", "SET", "masterauth", "")

    @staticmethod
    @contextlib.contextmanager
    def _passing() -> Iterator[None]:
        """Another fault may have the node, which then has its settings anew."""
        with contextlib.suppress(redis.RedisError, OSError):
            yield

    def _go_back(self, nodes: list[RedisProcess]) -> None:
        nodes = [node for node in nodes if self._snapshots.get(node.port)]
        for node in nodes:
            node.kill()
        for node in nodes:
            data = node.folder / "appendonlydir"
            shutil.rmtree(data)
            shutil.copytree(self._snapshots[node.port][0], data)
        for node in nodes:
            self._start(node)

    def _start(self, node: RedisProcess) -> None:
        """Starts a node, unless it runs."""
        with self._starting:
            if node.process.poll() is not None:
                node.restart()

    def _running(self) -> list[RedisProcess]:
        return [node for node in self._cluster.nodes if node.process.poll() is None]

    def _primaries(self) -> list[RedisProcess]:
        found = []
        for node in self._running():
            with contextlib.suppress(redis.RedisError, OSError):
                client = redis.Redis(port=node.port, socket_timeout=0.5)
                with contextlib.closing(client):
                    if client.execute_command("ROLE")[0] == b"master":
                        found.append(node)
        return found

    def _node(self, target: int) -> RedisProcess | None:
        primaries = self._primaries()
        return primaries[target % len(primaries)] if primaries else None


def _has_all_files(copy: Path) -> bool:
    """Whether a copy of `appendonlydir` has the files that its manifest names.

    It lacks some if it was made while the node's own files were replaced by a snapshot or by a
    rewrite. Redis does not start from it, unless only files of its history are missing.
    """
    lines = (copy / "appendonly.aof.manifest").read_text().splitlines()
    files = [line.split() for line in lines]  # file NAME seq NUMBER type b, i or h
    return all((copy / name).exists() for _, name, *_, kind in files if kind != "h")
