"""Control records in Redis: what the contract of all stores does not cover."""

from __future__ import annotations

import threading
from typing import Any

import pytest


def test_a_record_may_be_any_text_and_the_empty_one_is_not_none(
    redis_server: Any, open_redis: Any
) -> None:
    records = open_redis(redis_server.url).records
    assert not records.swap("a", "", "1")
    assert records.swap("a", None, "é\r\n=\0")
    assert records.get("a") == "é\r\n=\0"
    assert not records.swap("a", "é", "2")
    assert records.swap("a", "é\r\n=\0", "")
    assert records.get("a") == ""
    assert not records.swap("a", None, "")
    assert records.swap("a", "", None)
    assert records.get("a") is None
    assert records.swap("a", None, None)


def test_a_swap_whose_answer_was_lost_is_known_to_have_been_done(
    redis_servers: Any, open_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the command and is cut off before it answers."""
    monkeypatch.setattr("hotrow.store.redis.connections.ANSWER_SECONDS", 0.3)
    server = redis_servers.standalone()
    records = open_redis(server.url).records
    assert records.swap("a", None, "1")
    server.freeze()
    thaw = threading.Timer(0.5, server.thaw)
    thaw.start()
    assert records.swap("a", "1", "2")
    thaw.join()
    assert records.get("a") == "2"
    assert not records.swap("a", "1", "2")
