"""Announcements of cuts reach those who wait for them, whatever happens to connections."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from documented_acl import acl_rule
from integration.store.trained_states import export, full_export, state
from waiting import wait_until

from hotrow.store.access import StoreAccess
from hotrow.store.redis import announcements
from hotrow.store.redis.announcements import channel_of
from hotrow.store.redis.records import SLOT


@contextlib.contextmanager
def awaiting(store: Any, model: str = "m") -> Iterator[threading.Semaphore]:
    """Subscribes; gives what counts the calls, after the first one."""
    calls = threading.Semaphore(0)
    waiting = store.announcements(model, calls.release)
    try:
        assert calls.acquire(timeout=30.0), "the subscription has begun"
        yield calls
    finally:
        waiting.close()


@pytest.mark.parametrize("where", ["redis_server", "redis_cluster"])
def test_an_announcement_wakes_those_who_wait_for_its_model(
    where: str, request: Any, open_redis: Any
) -> None:
    servers = request.getfixturevalue(where)
    exporter, reader = open_redis(servers.url), open_redis(servers.url)
    with awaiting(reader) as calls, awaiting(reader, "other") as others:
        for _ in range(3):
            exporter.announce("m")
            assert calls.acquire(timeout=30.0)
        exporter.announce("other")
        assert others.acquire(timeout=30.0)
        assert not others.acquire(timeout=0.3)


def test_the_channel_is_in_the_slot_of_the_control_records(
    redis_cluster: Any, open_redis: Any
) -> None:
    for model in ("m", "a {model} of 1"):
        node = redis_cluster.nodes[0]
        assert redis_cluster.call(node, "CLUSTER", "KEYSLOT", channel_of(model)) == SLOT


def test_the_commit_of_a_cut_is_announced(redis_server: Any, open_redis: Any) -> None:
    store = open_redis(redis_server.url)
    generation = full_export(store)
    with awaiting(open_redis(redis_server.url), generation.model) as calls:
        assert export(store, generation, state(1)).committed
        assert calls.acquire(timeout=30.0)


def test_a_connection_that_ends_is_replaced(redis_server: Any, open_redis: Any) -> None:
    store = open_redis(redis_server.url)
    with awaiting(store) as calls:
        assert redis_server.call("CLIENT", "KILL", "TYPE", "pubsub") == 1
        assert calls.acquire(timeout=30.0), "messages may have been missed"
        store.announce("m")
        assert calls.acquire(timeout=30.0)


def test_a_connection_that_is_silent_is_replaced(
    redis_servers: Any, open_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_REPEAT_SECONDS", 0.3)
    server = redis_servers.standalone()
    store = open_redis(server.url)
    with awaiting(store) as calls:
        before = _subscriber(server)
        server.freeze()
        threading.Event().wait(2.0)  # longer than a confirmation may take
        server.thaw()
        wait_until(lambda: _subscriber(server) not in ("", before))
        while calls.acquire(timeout=0.1):
            pass
        store.announce("m")
        assert calls.acquire(timeout=30.0)


def _subscriber(server: Any) -> str:
    """Returns the name of the connection that subscribed; "" while there is none."""
    with server.client() as client:
        return "".join(found["id"] for found in client.client_list(_type="pubsub"))


def test_it_follows_a_failover_and_a_slot_that_moves(redis_servers: Any, open_redis: Any) -> None:
    cluster = redis_servers.cluster()
    store = open_redis(cluster.url)
    with awaiting(store) as calls:
        holder = cluster.primary_of(SLOT)
        holder.kill()
        assert calls.acquire(timeout=60.0), "subscribed at the new primary"
        _assert_received(store, calls)
        holder.restart()
        cluster.wait_healthy()
        source = cluster.primary_of(SLOT)
        target = next(node for node in cluster.primaries() if node is not source)
        identity = cluster.identity(target)
        for node in (target, source, *cluster.primaries()):
            cluster.call(node, "CLUSTER", "SETSLOT", SLOT, "NODE", identity)
        wait_until(lambda: _channels(cluster, target) == [channel_of("m").encode()])
        assert _channels(cluster, source) == []
        _assert_received(store, calls)


def _assert_received(store: Any, calls: threading.Semaphore) -> None:
    """Announces until a message arrives: the first ones may go to the former primary."""
    while calls.acquire(blocking=False):
        pass

    def received() -> bool:
        store.records.get("a")  # learns where the slot is, as an export does
        store.announce("m")
        return calls.acquire(timeout=0.2)

    wait_until(received, seconds=60.0)


def _channels(cluster: Any, node: Any) -> Any:
    return cluster.call(node, "PUBSUB", "SHARDCHANNELS")


def test_tls_and_the_documented_users_suffice(redis_servers: Any, open_redis: Any) -> None:
    rules = [acl_rule("hotrow-export"), acl_rule("hotrow-serve")]
    server = redis_servers.standalone(tls=True, password="admin", users=rules)
    access = StoreAccess(password="sesame", ca_file=str(server.certificates.folder / "ca.cert"))
    exporter, reader = (
        open_redis(server.url.replace("//", f"//{name}@"), access)
        for name in ("hotrow-export", "hotrow-serve")
    )
    with awaiting(reader) as calls:
        exporter.announce("m")
        assert calls.acquire(timeout=30.0)
        reader.announce("m")
        assert not calls.acquire(timeout=0.3), "servers cannot announce"


def test_without_the_rights_nothing_fails_and_each_side_says_so_once(
    redis_servers: Any,
    open_redis: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcements, "_REFUSED_SECONDS", 0.05)
    rules = [
        acl_rule(user).replace("&hotrow:{hr}:*", "resetchannels")
        for user in ("hotrow-export", "hotrow-serve")
    ]
    server = redis_servers.standalone(password="admin", users=rules)
    exporter, reader = (
        open_redis(server.url.replace("//", f"//{name}@"), StoreAccess(password="sesame"))
        for name in ("hotrow-export", "hotrow-serve")
    )
    caplog.set_level(logging.INFO)
    calls = threading.Semaphore(0)
    waiting = reader.announcements("m", calls.release)
    try:
        wait_until(lambda: _refusals(server) >= 3)  # it is tried again
        for _ in range(3):
            exporter.announce("m")
        lines = [r.getMessage() for r in caplog.records if "by polling" in r.getMessage()]
        assert len(lines) == 2, lines
        assert "cuts are found by polling alone" in lines[0]
        assert "cuts are not announced, servers find them by polling" in lines[1]
        assert all("docs/redis.md has the ACL rules" in line for line in lines)
        assert not calls.acquire(blocking=False)
        server.call("ACL", "SETUSER", "hotrow-serve", "&hotrow:{hr}:*")
        assert calls.acquire(timeout=30.0), "the rule was corrected"
    finally:
        waiting.close()


def _refusals(server: Any) -> int:
    with server.client() as admin:
        return int(np.sum([entry["count"] for entry in admin.acl_log()], dtype=int))


def test_a_store_that_is_away_fails_no_announcement(redis_servers: Any, open_redis: Any) -> None:
    server = redis_servers.standalone()
    store = open_redis(server.url)
    with awaiting(store) as calls:
        server.kill()
        store.announce("m")
        server.restart()
        assert calls.acquire(timeout=30.0), "subscribed again"
        store.announce("m")
        assert calls.acquire(timeout=30.0)
