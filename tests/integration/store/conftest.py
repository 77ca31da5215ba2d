"""The stores that every contract test runs on."""

from __future__ import annotations

import pytest

from hotrow.store import open_store


@pytest.fixture(params=["lmdb", "redis", "redis_cluster"])
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
