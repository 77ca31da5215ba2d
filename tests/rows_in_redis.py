"""Rows written to Redis as docs/formats.md says, for tests of their readers."""

from __future__ import annotations

import json
import struct

import numpy as np

from hotrow import _native

VERSION = 77
TOMBSTONE = 1 << 63


class RowsInRedis:
    """Tables of a generation: what lies in the store, and as a dict.

    Attributes:
        shards, number, pages: of the generation; pages of each table.
        rows: for each table its rows uint8 [B] by key.
        record: the control record, JSON.
    """

    def __init__(self, dims, *, count=2000, pages=10, shards=16, number=3, seed=0):
        self.shards, self.number, self.pages = shards, number, pages
        self.markers, self.slots = _native.store_names(shards, number)
        rng = np.random.default_rng(seed)
        self.keys, self.arrays = [], []
        for dim in dims:
            keys = np.unique(rng.integers(-(2**63), 2**63, count, dtype=np.int64))
            self.keys.append(rng.permutation(keys))
            self.arrays.append(rng.integers(0, 256, (len(keys), 4 * dim), dtype=np.uint8))
        self.rows = [
            dict(zip(keys.tolist(), rows, strict=True))
            for keys, rows in zip(self.keys, self.arrays, strict=True)
        ]
        tables = [
            {"name": f"t{i}", "dim": dim, "row_type": "float32", "default_value": 0.0}
            | {"rows": len(self.keys[i]), "pages": pages, "digest": ""}
            for i, dim in enumerate(dims)
        ]
        self.record = json.dumps(
            {"format": 1, "generation": "ab" * 16, "number": number, "model": "m", "version": 1}
            | {"step": 1, "source": "", "state": "complete", "shards": shards}
            | {"schema_hash": "", "created_ms": 0, "epoch": 0, "seq": VERSION, "tables": tables}
        )

    def write(self, client_of):
        """Writes all; client_of(slot) returns a client of the node that has it."""
        for table, (keys, rows) in enumerate(zip(self.keys, self.arrays, strict=True)):
            for shard, commands, payload in _native.pack_pages(
                keys, rows, VERSION, self.shards, self.number, table, self.pages
            ):
                connection = client_of(self.slots[shard]).connection_pool.get_connection()
                connection.send_packed_command([payload])
                assert {connection.read_response() for _ in range(commands)} == {b"OK"}
                connection.disconnect()
        for marker, slot in zip(self.markers, self.slots, strict=True):
            client_of(slot).hset(marker, "wm", struct.pack("<Q", VERSION))

    def page_name(self, table, key):
        """Returns the name of the page of a key."""
        shard, page = _native.page_of_keys(np.array([key]), self.shards, self.pages)
        return _native.page_names(
            self.shards, self.number, table, self.pages, int(shard[0]), first=int(page[0]), count=1
        )[0]

    def asked(self, seed=0, known=500, unknown=100):
        """Returns [(table, keys)] with keys of both kinds for every table."""
        rng = np.random.default_rng([seed, 1])
        requests = []
        for table, keys in enumerate(self.keys):
            others = rng.integers(-(2**63), 2**63, unknown, dtype=np.int64)
            mixed = np.concatenate([rng.choice(keys, known, replace=False), others])
            requests.append((table, rng.permutation(mixed)))
        return requests

    def check(self, requests, answers, allowed_failures=0):
        """Compares answers with the dict; returns how many keys failed."""
        failed = 0
        for (table, keys), (rows, versions, states) in zip(requests, answers, strict=True):
            for key, row, version, state in zip(keys.tolist(), rows, versions, states, strict=True):
                failed += int(state == 2)
                expected = self.rows[table].get(key)
                if state == 1:
                    np.testing.assert_array_equal(row, expected)
                    assert version == VERSION
                elif state == 0:
                    assert expected is None, "a known key reads as unknown"
        assert failed <= allowed_failures
        return failed

    def check_all_read(self, reader, seed=0, timeout_seconds=10.0):
        """Reads keys of all tables and compares them."""
        requests = self.asked(seed)
        answers, code, message = reader.read(requests, timeout_seconds)
        assert (code, message) == (0, "")
        self.check(requests, answers)


def topology_of_one(address: str) -> str:
    """Returns the topology of one node."""
    return json.dumps({"cluster": False, "nodes": [{"address": address}]})


def topology_of(cluster) -> str:
    """Returns the topology of a cluster as it is now."""
    nodes: dict[str, list] = {}
    for node, first, last in cluster.slot_ranges():
        nodes.setdefault(node.address, []).append([first, last])
    return json.dumps(
        {
            "cluster": True,
            "nodes": [{"address": address, "slots": slots} for address, slots in nodes.items()],
        }
    )


def write_to_cluster(stored: RowsInRedis, cluster) -> None:
    """Writes all rows to the primaries of their slots."""
    ranges = cluster.slot_ranges()
    clients = {node.port: cluster.client(node) for node, _, _ in ranges}

    def client_of(slot):
        return next(clients[node.port] for node, first, last in ranges if first <= slot <= last)

    stored.write(client_of)
    for client in clients.values():
        client.close()
