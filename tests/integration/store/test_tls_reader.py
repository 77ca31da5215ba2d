"""The native reader over TLS: exact, never in plain text, and with certificates that change."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time

import numpy as np
import pytest
from certificates import Certificates
from native_readers import native_readers
from redis_servers.tls import access_with
from rows_in_redis import RowsInRedis, topology_of, topology_of_one, write_to_cluster

from hotrow.store.access import StoreAccess

DATA_LOSS, UNAVAILABLE = 15, 14
FAILED = 2


def over_tls(topology: str, access: StoreAccess) -> str:
    files = {"ca": access.ca_file, "cert": access.cert_file, "key": access.key_file}
    return json.dumps(json.loads(topology) | {"tls": files})


def reader_of(rows, address, access, **options):
    topology = over_tls(topology_of_one(address), access)
    return native_readers().RedisReader(rows.record, topology, **options)


@pytest.fixture(scope="module")
def server(module_redis_servers):
    return module_redis_servers.standalone(tls=True, tls_clients=True, password="sesame")


@pytest.fixture(scope="module")
def rows(server) -> RowsInRedis:
    rows = RowsInRedis([16, 3])
    with server.client() as client:
        rows.write(lambda slot: client)
    return rows


def failure_of(reader, rows, seconds=2.0):
    """Returns code and message of a read that fails, and how long it took."""
    started = time.monotonic()
    answers, code, message = reader.read(rows.asked(), seconds)
    assert {state for answer in answers for state in np.unique(answer[2])} == {FAILED}
    return code, message, time.monotonic() - started


def test_reads_are_exact_and_a_wrong_password_is_named(server, rows) -> None:
    access = access_with(server.certificates)
    reader = reader_of(rows, server.address, access, password="sesame")
    for seed in range(10):
        rows.check_all_read(reader, seed)
    (node,) = reader.statistics()["nodes"]
    assert node == server.address
    assert reader.statistics()["nodes"][node]["connects"] == 1
    _, message, _ = failure_of(reader_of(rows, server.address, access, password="wrong"), rows)
    assert "WRONGPASS" in message


def test_answers_of_many_records_are_exact_to_many_threads(server) -> None:
    wide = RowsInRedis([512], count=4000, pages=2, number=7)  # pages of 250 KiB, 8 MiB in all
    with server.client() as client:
        wide.write(lambda slot: client)
    access = access_with(server.certificates)
    reader = reader_of(wide, server.address, access, password="sesame", silence_seconds=10.0)
    failures = []

    def read(thread: int) -> None:
        try:
            for seed in range(3):
                wide.check_all_read(reader, 10 * thread + seed)
        except AssertionError as err:
            failures.append(err)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.slow
def test_redirections_in_a_cluster_are_followed_over_tls(redis_servers) -> None:
    cluster = redis_servers.cluster(replicas=False, tls=True)
    rows = RowsInRedis([16], shards=256, pages=3)
    write_to_cluster(rows, cluster)
    known = json.loads(topology_of(cluster))
    # All slots at a node that has a third of them: the others are known by redirections alone.
    known["nodes"] = [known["nodes"][0] | {"slots": [[0, 16383]]}]
    topology = over_tls(json.dumps(known), access_with(cluster.certificates))
    reader = native_readers().RedisReader(rows.record, topology)
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


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("another authority", "TLS: The certificate is NOT trusted. The certificate issuer is unk"),
        ("another name", "The name in the certificate does not match the expected."),
        ("no certificate of its own", "TLS: the node says: Certificate is required"),
        ("no TLS there", "it does not answer"),
        ("no server there", "Connection refused"),
    ],
)
def test_a_node_that_cannot_be_trusted_is_reported_at_once(
    redis_servers, rows, case, message
) -> None:
    settings = {"bind": "127.0.0.1 127.0.0.2"}
    server = redis_servers.standalone(tls=True, tls_clients=True, settings=settings)
    access, address = access_with(server.certificates), server.address
    if case == "another authority":
        access = StoreAccess(cert_file=access.cert_file, key_file=access.key_file)
    elif case == "another name":
        address = f"127.0.0.2:{server.port}"
    elif case == "no certificate of its own":
        access = StoreAccess(ca_file=access.ca_file)
    elif case == "no TLS there":
        address = redis_servers.standalone().address
    elif case == "no server there":
        server.kill()
    code, text, seconds = failure_of(reader_of(rows, address, access), rows)
    assert code == UNAVAILABLE
    assert text.startswith(f"Redis node {address}: ")
    assert message in text
    assert seconds < 1.0


def test_a_refusal_is_reported_although_the_node_closes_at_once(redis_servers, rows) -> None:
    """Commands that the reader sends meanwhile fail; the node's reason arrived before."""
    server = redis_servers.standalone(tls=True, tls_clients=True)
    access = StoreAccess(ca_file=access_with(server.certificates).ca_file)
    for _ in range(100):
        _, text, _ = failure_of(reader_of(rows, server.address, access), rows)
        assert "TLS: the node says: Certificate is required" in text


def test_nothing_is_sent_in_plain_text(rows) -> None:
    """A listener without TLS gets a greeting of TLS, and neither the password nor a key."""
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            for _ in range(2):  # the reader connects once more
                with listener.accept()[0] as client:
                    taken.append(client.recv(1 << 16))
                    client.sendall(b"-ERR no TLS here\r\n")

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        reader = reader_of(rows, address, StoreAccess(), username="reader", password="sesame")
        _, text, _ = failure_of(reader, rows)
        thread.join()
    assert "TLS: " in text
    assert len(taken) == 2
    for data in taken:
        assert data[:1] == b"\x16"  # a handshake record
        assert b"sesame" not in data
        assert b"AUTH" not in data


def test_certificates_are_read_again_when_they_change(redis_servers, tmp_path) -> None:
    """An authority and all certificates are replaced; the reader's next connection uses them."""
    server = redis_servers.standalone(tls=True, tls_clients=True, settings={"save": "1 1"})
    rows = RowsInRedis([16])
    with server.client() as client:
        rows.write(lambda slot: client)
    home = server.certificates.folder
    reader = reader_of(rows, server.address, access_with(server.certificates))
    rows.check_all_read(reader)
    new = tmp_path / "new"
    new.mkdir()
    Certificates(new)
    server.stop()
    shutil.copytree(new, home, dirs_exist_ok=True)
    server.restart()
    until = time.monotonic() + 10.0
    while reader.read(rows.asked(), 2.0)[1] != 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    rows.check_all_read(reader)
    # A file that cannot be used does not end what works.
    (home / "client.cert").write_text("no")
    server.stop()
    server.restart()
    while reader.read(rows.asked(), 2.0)[1] != 0:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_node_that_is_frozen_or_killed_holds_a_read_no_longer_than_its_patience(
    redis_servers,
) -> None:
    server = redis_servers.standalone(tls=True, settings={"save": "1 1"})
    rows = RowsInRedis([16])
    with server.client() as client:
        rows.write(lambda slot: client)
    access = access_with(server.certificates)
    reader, fresh = (reader_of(rows, server.address, access) for _ in range(2))
    rows.check_all_read(reader)
    server.freeze()
    for of in (reader, fresh):
        code, text, seconds = failure_of(of, rows)
        assert code == UNAVAILABLE
        assert "it does not answer" in text
        assert seconds < 1.5
    server.thaw()
    until = time.monotonic() + 10.0
    while reader.read(rows.asked(), 2.0)[1] != 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    server.stop()
    code, text, _ = failure_of(reader, rows)
    assert code == UNAVAILABLE
    assert "Connection refused" in text
    server.restart()
    while reader.read(rows.asked(), 2.0)[1] != 0:
        assert time.monotonic() < until + 10.0
        time.sleep(0.05)
    rows.check_all_read(reader)


@pytest.mark.parametrize("damaged", ["ca", "key", "missing"])
def test_files_that_are_no_certificates_are_named(server, rows, tmp_path, damaged) -> None:
    good = access_with(server.certificates)
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("no")
    files = {"ca": good.ca_file, "cert": good.cert_file, "key": good.key_file}
    files["ca" if damaged == "missing" else damaged] = str(no_pem)
    if damaged == "missing":
        no_pem.unlink()
    topology = json.loads(topology_of_one(server.address)) | {"tls": files}
    message = r"the certificates of the store cannot be used: .*no\.pem: .*give PEM files"
    with pytest.raises(Exception, match=message):
        native_readers().RedisReader(rows.record, json.dumps(topology))
