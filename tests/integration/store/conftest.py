"""The stores that every contract test runs on, and those that have their own tests."""

from __future__ import annotations

import pytest

from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.redis.row_store import RedisStore
from hotrow.store.url import parse_store_url


# A cluster differs in where records lie, which test_redis_rows.py and its like show.
@pytest.fixture(params=["lmdb", "redis", pytest.param("redis_cluster", marks=pytest.mark.slow)])
def store_url(request, tmp_path):
    """URL of an empty store."""
    if request.param == "lmdb":
        return f"file://{tmp_path}/store"
    server = "redis_server" if request.param == "redis" else "redis_cluster"
    return request.getfixturevalue(server).url


@pytest.fixture
def store(store_url):
    """An empty store."""
    opened = open_store(store_url, create=True)
    yield opened
    opened.close()


@pytest.fixture
def redis(redis_servers):
    """A Redis that only this test uses."""
    return redis_servers.standalone()


@pytest.fixture
def open_redis():
    """Opens stores in Redis, `open_redis(url, access, patience_seconds)`; the test closes none."""
    stores = []

    def connect(url, access=None, patience_seconds=20.0):
        parsed = parse_store_url("--store", url)
        stores.append(RedisStore(parsed, access or StoreAccess(), patience_seconds))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()
