"""A Redis whose disk is full refuses writes, answers reads, and goes on when there is room."""

from __future__ import annotations

import resource

import pytest
from waiting import wait_until

from hotrow.errors import ResourceExhaustedError

FREE = resource.RLIM_INFINITY


def limit_files(redis, most_bytes):
    resource.prlimit(redis.process.pid, resource.RLIMIT_FSIZE, (most_bytes, FREE))


def test_a_full_disk_is_named_and_passes(redis_servers, open_redis):
    redis = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "everysec"})
    store = open_redis(redis.url)
    assert store.records.swap("a", None, "1")
    (file,) = (redis.folder / "appendonlydir").glob("*.incr.aof")
    limit_files(redis, file.stat().st_size)
    with pytest.raises(ResourceExhaustedError, match=r"MISCONF.*is its disk full"):
        for number in range(100):  # Redis answers the first before it writes
            store.records.swap(f"b{number}", None, "1")
    assert store.records.get("a") == "1"
    limit_files(redis, FREE)

    def is_taken():
        try:
            return store.records.swap("a", "1", "2")
        except ResourceExhaustedError:
            return False

    wait_until(is_taken)
