"""The relay that speaks TLS for the native reader: whole, patient, and never in plain text."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from native_readers import native_readers
from redis_servers.tls import access_with, tls_of_client
from rows_in_redis import RowsInRedis, topology_of, topology_of_one, write_to_cluster
from waiting import wait_until

from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.store.redis.tls_relay import TlsRelay

UNAVAILABLE = 14


@contextlib.contextmanager
def relay_to(server, access=None) -> Iterator[TlsRelay]:
    relay = TlsRelay(access or access_with(server.certificates))
    try:
        yield relay
    finally:
        relay.close()


@contextlib.contextmanager
def connected(relay, address) -> Iterator[socket.socket]:
    """Connects and asks for a node; the answer is unread."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20.0)
        client.connect(relay.path)
        client.sendall(f"{address}\r\n".encode())
        yield client


def read(client, size):
    data = bytearray()
    while len(data) < size:
        got = client.recv(min(1 << 20, size - len(data)))
        if not got:
            break
        data += got
    return bytes(data)


def with_relay(topology, relay):
    return json.dumps(json.loads(topology) | {"relay": f"unix:{relay.path}"})


@pytest.fixture(scope="module")
def server(module_redis_servers):
    return module_redis_servers.standalone(tls=True, tls_clients=True, password="sesame")


def test_native_reads_over_tls_are_exact(server) -> None:
    rows = RowsInRedis([16, 3])
    with server.client() as client:
        rows.write(lambda slot: client)
    with relay_to(server) as relay:
        topology = with_relay(topology_of_one(server.address), relay)
        reader = native_readers().RedisReader(rows.record, topology, password="sesame")
        for seed in range(10):
            rows.check_all_read(reader, seed)
        (node,) = reader.statistics()["nodes"]
        assert node == server.address
        refused = native_readers().RedisReader(rows.record, topology, password="wrong")
        answers, _, message = refused.read(rows.asked(), 2.0)
        assert "WRONGPASS" in message
        assert set(answers[0][2].tolist()) == {2}


@pytest.mark.slow
def test_redirections_in_a_cluster_are_followed_over_tls(redis_servers) -> None:
    cluster = redis_servers.cluster(replicas=False, tls=True)
    rows = RowsInRedis([16], shards=256, pages=3)
    write_to_cluster(rows, cluster)
    known = json.loads(topology_of(cluster))
    # All slots at a node that has a third of them: the others are known by redirections alone.
    known["nodes"] = [known["nodes"][0] | {"slots": [[0, 16383]]}]
    with relay_to(cluster) as relay:
        reader = native_readers().RedisReader(rows.record, with_relay(json.dumps(known), relay))
        rows.check_all_read(reader)
        assert len(reader.statistics()["nodes"]) == 3
        ends, failures, reads = threading.Event(), [], []

        def read_on() -> None:
            try:
                while not ends.is_set():
                    rows.check_all_read(reader, len(reads))
                    reads.append(1)
            except AssertionError as err:
                failures.append(err)

        thread = threading.Thread(target=read_on)
        thread.start()
        source, target = cluster.primaries()[:2]
        cluster.move_slots(500, source, target)
        ends.set()
        thread.join()
        assert failures == []
        assert len(reads) > 3


def test_bytes_pass_unchanged_and_wait_for_who_does_not_read(server) -> None:
    value = bytes(range(256)) * 16384  # 4 MiB
    with relay_to(server) as relay, connected(relay, server.address) as client:
        assert read(client, 5) == b"+OK\r\n"
        client.sendall(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsesame\r\n")
        assert read(client, 5) == b"+OK\r\n"
        client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n" % (len(value), value))
        assert read(client, 5) == b"+OK\r\n"
        before = resident_bytes()
        for _ in range(64):
            client.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
        wait_until_it_rests(resident_bytes)
        assert resident_bytes() - before < 64 << 20
        answer = b"$%d\r\n%s\r\n" % (len(value), value)
        for _ in range(64):
            assert read(client, len(answer)) == answer


def wait_until_it_rests(number, seconds=0.2):
    """Waits until a number stays as it is for so long."""
    last, since = number(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.02)
        if number() != last:
            last, since = number(), time.monotonic()


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("another authority", b"-TLS [SSL: CERTIFICATE_VERIFY_FAILED]"),
        ("another name", b"not valid for '127.0.0.2'"),
        ("no TLS there", b"-TLS no answer in 3 s"),
        ("nobody there", b"-TLS Connection refused"),
        ("no such host", b"-TLS "),
        ("no address", b"-TLS 'what' is no host:port"),
    ],
)
def test_a_node_that_cannot_be_reached_is_reported_at_once(redis_servers, case, message) -> None:
    bind = {"bind": "127.0.0.1 127.0.0.2"}
    server = redis_servers.standalone(tls=True, settings=bind)
    access, address = access_with(server.certificates), server.address
    if case == "another authority":
        access = StoreAccess()
    elif case == "another name":
        address = f"127.0.0.2:{server.port}"
    elif case == "no TLS there":
        address = redis_servers.standalone().address
    elif case == "nobody there":
        server.kill()
    elif case == "no such host":
        address = "no-such-host.invalid:1"
    else:
        address = "what"
    with relay_to(server, access) as relay, connected(relay, address) as client:
        started = time.monotonic()
        answer = read(client, 10_000)
        assert message in answer
        assert answer.startswith(b"-TLS ")
        assert answer.count(b"\r\n") == 1
        assert answer.endswith(b"\r\n")
        assert case in ("no such host", "no TLS there") or time.monotonic() - started < 1.0


def test_each_side_ends_with_the_other(redis_servers) -> None:
    server = redis_servers.standalone(tls=True)
    with relay_to(server) as relay:
        with connected(relay, server.address) as client:
            assert read(client, 5) == b"+OK\r\n"
            assert server.call("CLIENT", "LIST").count(b"\n") == 2
        wait_until(lambda: server.call("CLIENT", "LIST").count(b"\n") == 1)
        with connected(relay, server.address) as client:
            assert read(client, 5) == b"+OK\r\n"
            server.kill()
            assert read(client, 1) == b""


def test_a_frozen_node_keeps_nobody_else_waiting(redis_servers, server) -> None:
    frozen = redis_servers.standalone(tls=True)
    frozen.freeze()
    with relay_to(server) as relay, connected(relay, frozen.address) as waiting:
        with connected(relay, server.address) as client:
            assert read(client, 5) == b"+OK\r\n"
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(20.0)
        assert read(waiting, 1000) == b"-TLS no answer in 3 s\r\n"
        with connected(relay, frozen.address):
            pass
    frozen.thaw()


def test_a_relay_is_private_and_leaves_nothing(server, tmp_path) -> None:
    relay = TlsRelay(access_with(server.certificates))
    folder = Path(relay.path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with connected(relay, server.address) as client, connected(relay, server.address) as silent:
        assert read(client, 5) == b"+OK\r\n"
        relay.close()
        assert read(client, 1) == b""
        # Its address may not have been read yet; then its connection is reset.
        left = b""
        with contextlib.suppress(ConnectionResetError):
            left = read(silent, 5)
        assert left in (b"", b"+OK\r\n")
    relay.close()
    assert not folder.exists()
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with pytest.raises(InvalidArgumentError, match="at most 107 bytes"):
        TlsRelay(StoreAccess(), deep)
    assert list(deep.iterdir()) == []
    no_pem = tmp_path / "ca"
    no_pem.write_text("no")
    with pytest.raises(InvalidArgumentError, match="give PEM files"):
        TlsRelay(StoreAccess(ca_file=str(no_pem)))


def test_a_line_without_an_end_is_not_waited_for(server) -> None:
    with relay_to(server) as relay, connected(relay, "x" * 400) as client:
        assert read(client, 100).startswith(b"-TLS 'xxx")
    with relay_to(server) as relay, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(relay.path)
        with contextlib.suppress(ConnectionError):
            client.sendall(b"x" * 400)
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""


def test_many_connections_come_and_go(server) -> None:
    with relay_to(server) as relay:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connected(relay, server.address)) for _ in range(100)]
            for client in clients:
                assert read(client, 5) == b"+OK\r\n"
                client.sendall(b"PING\r\n")
            assert {read(client, 7) for client in clients} == {b"-NOAUTH"}
        where = {"host": "127.0.0.1", "port": server.port, "password": "sesame"}
        with redis.Redis(**where, **tls_of_client(server.certificates)) as direct:
            wait_until(lambda: len(direct.client_list()) == 1)
