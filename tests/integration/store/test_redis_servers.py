"""The Redis servers that tests use do what their classes say, and end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redis

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "options",
    [{}, {"password": "secret"}, {"unix_socket": True}, {"tls": True}, {"tls_clients": True}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_a_server_answers_its_own_client(redis_servers: Any, options: dict[str, Any]) -> None:
    server = redis_servers.standalone(**{"tls": "tls_clients" in options, **options})
    assert server.call("SET", "a", "1") is True
    server.kill()
    server.restart()
    assert server.call("GET", "a") is None


def test_the_default_user_needs_its_password_and_others_have_their_rules(
    redis_servers: Any,
) -> None:
    server = redis_servers.standalone(password="secret", users=["eve on >eve ~a* +get"])
    stranger = redis.Redis("127.0.0.1", server.port, retry=None)
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with redis.Redis("127.0.0.1", server.port, username="eve", password="eve") as eve:
        assert eve.get("a") is None
        with pytest.raises(redis.exceptions.NoPermissionError):
            eve.get("b")


def test_a_full_server_refuses_writes(redis_servers: Any) -> None:
    server = redis_servers.standalone(maxmemory="2mb")
    with server.client() as client, pytest.raises(redis.exceptions.OutOfMemoryError):
        for number in range(100):
            client.set(f"key{number}", b"x" * 100_000)


def test_a_cluster_fails_over_heals_and_moves_slots(redis_servers: Any) -> None:
    cluster = redis_servers.cluster()
    assert len(cluster.primaries()) == 3
    slot = cluster.call(cluster.nodes[0], "CLUSTER", "KEYSLOT", "{a}")
    holder = cluster.primary_of(slot)
    assert cluster.call(holder, "SET", "{a}", "1")
    assert cluster.call(holder, "WAIT", 1, 5000) == 1
    killed = cluster.kill_primary(cluster.primaries().index(holder))
    cluster.wait_healthy()
    new = cluster.primary_of(slot)
    assert new is not killed
    assert cluster.call(new, "GET", "{a}") == b"1"
    killed.restart()
    cluster.wait_healthy()
    assert killed not in cluster.primaries()
    target = next(node for node in cluster.primaries() if node is not new)
    first = next(first for node, first, _ in cluster.slot_ranges() if node is new)
    cluster.move_slots(10, new, target)
    cluster.wait_healthy()
    assert cluster.primary_of(first + 9) is target
    assert cluster.primary_of(first + 10) is new


def test_sentinels_make_the_replica_the_primary(redis_servers: Any) -> None:
    sentinel = redis_servers.sentinel(password="secret")
    killed = sentinel.kill_primary()
    sentinel.wait_healthy()
    primary = sentinel.primary()
    assert primary is not killed
    assert sentinel.call(primary, "SET", "a", "1")
    # A primary that is slow for a second would lose its place to the other one, which is empty.
    sentinel.set_down_after(60)
    killed.restart()
    sentinel.wait_healthy()
    assert sentinel.call(killed, "GET", "a") == b"1"


def test_slots_are_closed_after_a_restore_in_the_midst_of_their_move(redis_servers: Any) -> None:
    """Both nodes have a key of the slot, and a replica took over while it was imported."""
    cluster = redis_servers.cluster()
    slot = cluster.call(cluster.nodes[0], "CLUSTER", "KEYSLOT", "{t}a")
    holder = cluster.primary_of(slot)
    importer = next(node for node in cluster.primaries() if node is not holder)
    cluster.call(holder, "SET", "{t}a", "of the holder")
    cluster.call(importer, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.identity(holder))
    with contextlib.closing(cluster.client(importer)) as client:
        for key in ("{t}a", "{t}b"):
            asked = client.pipeline(transaction=False)
            asked.execute_command("ASKING")
            asked.set(key, "of the importer")
            asked.execute()
    replica = next(n for n in cluster.nodes if cluster.call(n, "ROLE")[2] == holder.port)
    assert cluster.call(holder, "WAIT", 1, 5000) == 1
    cluster.call(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
    assert cluster.open_slots()
    cluster.close_slots()
    cluster.wait_healthy()
    assert not cluster.open_slots()
    found = cluster.primary_of(slot)
    assert found is replica
    assert cluster.call(found, "MGET", "{t}a", "{t}b") == [b"of the holder", b"of the importer"]
    assert cluster.call(importer, "CLUSTER", "COUNTKEYSINSLOT", slot) == 0


def test_shared_servers_are_empty(redis_server: Any, redis_cluster: Any) -> None:
    assert redis_server.call("DBSIZE") == 0
    for node in redis_cluster.primaries():
        assert redis_cluster.call(node, "DBSIZE") == 0
        assert redis_cluster.call(node, "FUNCTION", "LIST") == []


def test_servers_end_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from redis_servers.standalone import RedisServer\n"
        f"server = RedisServer(pathlib.Path({str(tmp_path)!r}) / 'server')\n"
        "print(server.process.pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 5
    while _runs(server):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(number: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{number}/stat").read_text()
    except FileNotFoundError:
        return False
