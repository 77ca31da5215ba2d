"""Readers of rows in Redis, for the tests of native reads."""

from __future__ import annotations

import time

import numpy as np
from native_readers import native_readers
from rows_in_redis import RowsInRedis, topology_of_one


def reader_of(stored, server, **access):
    address = server.address if server.socket is None else f"unix:{server.socket}"
    return native_readers().RedisReader(stored.record, topology_of_one(address), **access)


def started(redis_servers, **options):
    """Returns (server, its rows): a server of one test alone."""
    server = redis_servers.standalone(**options)
    rows = RowsInRedis([16])
    with server.client() as client:
        rows.write(lambda slot: client)
    return server, rows


def timed_read(reader, requests, timeout_seconds):
    start = time.perf_counter()
    answers, code, message = reader.read(requests, timeout_seconds)
    return answers, code, message, time.perf_counter() - start


def all_states(answers):
    return set(np.concatenate([states for _, _, states in answers]).tolist())
