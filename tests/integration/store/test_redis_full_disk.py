"""A Redis whose disk is full refuses writes, answers reads, and goes on when there is room."""

from __future__ import annotations

import pytest
from full_disk import fill_disk_of, free_disk_of
from waiting import wait_until

from hotrow.errors import ResourceExhaustedError


def test_a_full_disk_is_named_and_passes(redis_servers, open_redis):
    redis = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "everysec"})
    store = open_redis(redis.url)
    assert store.records.swap("a", None, "1")
    (file,) = (redis.folder / "appendonlydir").glob("*.incr.aof")
    fill_disk_of(redis.process.pid, file.stat().st_size)
    with pytest.raises(ResourceExhaustedError, match=r"MISCONF.*is its disk full"):
        for number in range(100):  # Redis answers the first before it writes
            store.records.swap(f"b{number}", None, "1")
    assert store.records.get("a") == "1"
    free_disk_of(redis.process.pid)

    def is_taken():
        try:
            return store.records.swap("a", "1", "2")
        except ResourceExhaustedError:
            return False

    wait_until(is_taken)
