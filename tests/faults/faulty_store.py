"""A Redis Cluster with all that may go wrong with it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from faults.clocks import Clock
from faults.network import Network
from faults.store_faults import SETTINGS, StoreFaults
from redis_servers.cluster import RedisCluster

NODES = 6
NODE_TIMEOUT_SECONDS = 2.0


class FaultyStore:
    """Three primaries and three replicas behind proxies, with clocks of their own.

    Args:
        folder: for all files.
        library: of `clocks.build`.

    Attributes:
        cluster: the nodes.
        network: the proxies.
        clocks: of the nodes.
        faults: of the nodes.
    """

    def __init__(self, folder: Path, library: Path) -> None:
        self._open = contextlib.ExitStack()
        self.clocks = [Clock(folder / f"node{n}.clock", library) for n in range(NODES)]
        self.network = Network(NODES)
        self._open.callback(self.network.close)
        self.cluster = RedisCluster(
            folder / "redis",
            node_timeout_ms=int(1000 * NODE_TIMEOUT_SECONDS),
            settings=dict(SETTINGS),
            announced_ports=self.network.ports,
            variables=[clock.variables for clock in self.clocks],
            started=self.network.connect,
        )
        self._open.callback(self.cluster.kill)
        self.faults = StoreFaults(self.cluster)

    def close(self) -> None:
        """Ends all nodes and proxies."""
        self._open.close()
