"""REST as HTTP: compression, browsers, slow clients, long bodies."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow
import pytest
from waiting import wait_until

MODEL = "/v1/models/half:predict"
MANY = json.dumps({"instances": [1.0] * 1000}).encode()
ANSWER = {"predictions": [2.5] * 1000}


@pytest.fixture
def ask() -> Iterator[Any]:
    """Sends a request to a server; returns the reply, with its whole body."""
    connections = []

    def send(
        server: Any, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
        connections.append(connection)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(verb, path, body, named)
        reply = connection.getresponse()
        return reply, reply.read()

    yield send
    for connection in connections:
        connection.close()


def _zstd(body: bytes) -> bytes:
    return pyarrow.compress(body, "zstd", asbytes=True)


def _unzstd(body: bytes) -> bytes:
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(body), "zstd") as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("gzip;q=0, identity", None),
        ("br", None),
        ("", None),
    ],
)
def test_a_reply_is_compressed_as_the_client_asks(
    half_plus_two: Any, ask: Any, accepted: str, coding: str | None
) -> None:
    reply, body = ask(half_plus_two, "POST", MODEL, MANY, Accept_Encoding=accepted)
    assert reply.status == 200
    assert reply.headers["Content-Encoding"] == coding
    assert reply.headers["Vary"] == (None if coding is None else "Accept-Encoding")
    plain = {"gzip": gzip.decompress, "zstd": _unzstd, None: bytes}[coding](body)
    assert json.loads(plain) == ANSWER
    assert (len(body) < len(plain)) == (coding is not None)


def test_a_small_reply_is_not_compressed(half_plus_two: Any, ask: Any) -> None:
    reply, body = ask(
        half_plus_two, "POST", MODEL, b'{"instances": [1.0]}', Accept_Encoding="gzip, zstd"
    )
    assert reply.headers["Content-Encoding"] is None
    assert json.loads(body) == {"predictions": [2.5]}


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("GZIP", gzip.compress), ("zstd", _zstd)]
)
def test_a_request_may_be_compressed(
    half_plus_two: Any, ask: Any, coding: str, compress: Any
) -> None:
    reply, body = ask(half_plus_two, "POST", MODEL, compress(MANY), Content_Encoding=coding)
    assert reply.status == 200
    assert json.loads(body) == ANSWER


@pytest.mark.parametrize(("coding", "name"), [("gzip", "gzipped"), ("zstd", "zstd")])
@pytest.mark.parametrize("body", [b"no such thing", b""], ids=["another thing", "nothing"])
def test_a_request_that_is_not_compressed_as_it_says_is_refused(
    half_plus_two: Any, ask: Any, coding: str, name: str, body: bytes
) -> None:
    reply, text = ask(half_plus_two, "POST", MODEL, body, Content_Encoding=coding)
    assert reply.status == 400
    assert json.loads(text)["error"] in (
        f"Failed to uncompress the {name} body",
        "JSON Parse error: The document is empty",
    )


@pytest.mark.parametrize(
    ("origin", "status"), [("http://here.example", 200), ("https://b", 200), ("file://c", 400)]
)
def test_options_answers_origins_of_the_web(
    half_plus_two: Any, ask: Any, origin: str, status: int
) -> None:
    reply, body = ask(half_plus_two, "OPTIONS", MODEL, Origin=origin)
    assert (reply.status, body) == (status, b"")
    assert reply.headers["Access-Control-Allow-Origin"] is None


def test_options_without_an_origin_is_refused(half_plus_two: Any, ask: Any) -> None:
    reply, body = ask(half_plus_two, "OPTIONS", "/v1/models/half")
    assert (reply.status, body) == (400, b"")


def test_browsers_may_read_replies_when_asked_for(base: Path, start_server: Any, ask: Any) -> None:
    server = start_server("half", base, "--rest_api_enable_cors_support")
    server.wait_ready()
    for verb, path, body in (
        ("POST", MODEL, MANY),
        ("POST", MODEL, b"{"),
        ("GET", "/v1/models/half", None),
        ("OPTIONS", MODEL, None),
    ):
        reply, _ = ask(server, verb, path, body, Origin="http://here.example")
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        assert reply.headers["Access-Control-Allow-Methods"] == "POST, GET"
        assert reply.headers["Access-Control-Allow-Headers"] == "Content-Type"
    reply, _ = ask(server, "GET", "/elsewhere")
    assert reply.headers["Access-Control-Allow-Origin"] is None


def test_every_interface_is_listened_on(half_plus_two: Any) -> None:
    addresses = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for address in addresses:
        connection = http.client.HTTPConnection(address, half_plus_two.rest_port, timeout=60)
        connection.request("GET", "/v1/models/half/labels/of-no-matter")
        assert connection.getresponse().status == 200
        connection.close()


def test_models_are_listed(half_plus_two: Any) -> None:
    status, body = half_plus_two.rest("/v1/models")
    assert status == 200
    (model,) = json.loads(body)["models"]
    assert model["name"] == "half"
    # The rest is what the status of one model says.
    assert half_plus_two.rest("/v1/models/half")[0] == 200
    alone = json.loads(half_plus_two.rest("/v1/models/half")[1])
    assert model["model_version_status"] == alone["model_version_status"]


@pytest.fixture
def limited(base: Path, start_server: Any) -> Any:
    """A server that takes bodies of 1000 bytes within half a second."""
    server = start_server(
        "half", base, "--rest_api_max_body_bytes=1000", "--rest_api_read_timeout_in_ms=500"
    )
    server.wait_ready()
    return server


def _said(server: Any, *parts: bytes, pause: float = 0.0) -> bytes:
    """Sends parts with pauses; returns what the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as client:
        for part in parts:
            try:
                client.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        said = b""
        try:
            while more := client.recv(65536):
                said += more
        except ConnectionResetError:
            pass
        return said


def test_a_long_body_is_refused_before_it_is_read(limited: Any) -> None:
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"
    said = _said(limited, head)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"The request body is longer than 1000 bytes" in said


def test_a_long_body_of_unknown_length_is_refused(limited: Any) -> None:
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = _said(limited, head, b"400\r\n" + b"a" * 1024 + b"\r\n")
    assert said.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_grows_too_long_is_refused(limited: Any, ask: Any, coding: str) -> None:
    body = {"gzip": gzip.compress, "zstd": _zstd}[coding](b" " * 100_000)
    assert len(body) < 1000
    reply, text = ask(limited, "POST", MODEL, body, Content_Encoding=coding)
    assert reply.status == 413
    assert "longer than 1000 bytes" in json.loads(text)["error"]


@pytest.mark.parametrize(
    "head",
    [b"", b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\n"],
    ids=["says nothing", "does not end its headers"],
)
def test_a_client_is_left_that(limited: Any, head: bytes) -> None:
    drops = [b"X: y\r\n"] * 30 if head else []
    said = _said(limited, head, *drops, pause=0.1)
    assert said.startswith(b"HTTP/1.1 408 ") or said == b""


def test_a_slow_body_is_refused(limited: Any) -> None:
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n"
    said = _said(limited, head, *[b" "] * 30, pause=0.1)
    assert said.startswith(b"HTTP/1.1 408 ")


def test_slow_clients_keep_nobody_else_waiting(limited: Any, ask: Any) -> None:
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n"
    slow = [
        socket.create_connection(("127.0.0.1", limited.rest_port), timeout=60) for _ in range(200)
    ]
    try:
        for client in slow:
            client.sendall(head)
        reply, body = ask(limited, "POST", MODEL, b'{"instances": [1.0]}')
        assert reply.status == 200
        assert json.loads(body) == {"predictions": [2.5]}
    finally:
        for client in slow:
            client.close()


def test_a_connection_may_wait_longer_between_two_requests(limited: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", limited.rest_port, timeout=60)
    try:
        for _ in range(2):
            connection.request("POST", MODEL, b'{"instances": [1.0]}')
            reply = connection.getresponse()
            assert reply.status == 200
            reply.read()
            local = connection.sock.getsockname()
            time.sleep(1.0)  # more than a request's headers may take
        assert connection.sock.getsockname() == local
    finally:
        connection.close()


def test_many_clients_stay_connected(base: Path, start_server: Any) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        server = start_server("half", base)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    server.wait_ready()
    with contextlib.ExitStack() as clients:
        for _ in range(300):
            address = ("127.0.0.1", server.rest_port)
            client = clients.enter_context(socket.create_connection(address, timeout=20))
            client.sendall(b"GET /v1/health/live HTTP/1.1\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.fixture(scope="module")
def bounded(zoo_dir: Path, start_shared_server: Any) -> Any:
    """A server of the zoo whose requests hold 20,000 bytes together; REST has one thread."""
    server = start_shared_server(
        "zoo",
        zoo_dir,
        "--request_memory_bytes=20000",
        "--rest_api_num_threads=1",
        "--rest_api_timeout_in_ms=1000",
    )
    server.wait_ready()
    return server


def test_bodies_have_a_bound_together(bounded: Any, ask: Any) -> None:
    path = "/v1/models/zoo:predict"
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 15000\r\n\r\n" % path.encode()
    small = b'{"inputs": [1.0]}'
    with socket.create_connection(("127.0.0.1", bounded.rest_port), timeout=60) as client:
        # What is announced and does not come is no obstacle.
        client.sendall(head)
        assert ask(bounded, "POST", path, small.ljust(19_000))[0].status == 200
        client.sendall(b" " * 14_000)
        wait_until(lambda: ask(bounded, "POST", path, small.ljust(7000))[0].status == 503)
        said = _said(bounded, head)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"--request_memory_bytes" in said
        chunked = head.replace(b"Content-Length: 15000", b"Transfer-Encoding: chunked")
        said = _said(bounded, chunked, b"2000\r\n" + b" " * 8192 + b"\r\n")
        assert said.startswith(b"HTTP/1.1 503 ")
        grown = gzip.compress(small.ljust(8000))
        assert ask(bounded, "POST", path, grown, Content_Encoding="gzip")[0].status == 503
        assert ask(bounded, "POST", path, small)[0].status == 200
    # It left.
    wait_until(lambda: ask(bounded, "POST", path, small.ljust(19_000))[0].status == 200)


def test_short_values_need_more_memory_than_their_body(bounded: Any, ask: Any) -> None:
    for value, count, status in (("0.12345678", 160, 200), ("1", 880, 503)):
        body = gzip.compress(b'{"inputs": [%s]}' % ",".join([value] * count).encode())
        path = "/v1/models/zoo:predict"
        assert ask(bounded, "POST", path, body, Content_Encoding="gzip")[0].status == status


def test_a_request_waits_for_a_thread_as_long_as_a_run_may_take(bounded: Any) -> None:
    spin = b'{"signature_name": "spin", "inputs": %d}' % 2**60
    statuses = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", bounded.rest_port, timeout=60)
        try:
            connection.request("POST", "/v1/models/zoo:predict", spin)
            statuses.append(connection.getresponse().status)
        finally:
            connection.close()

    send()  # so that it is known as a long run
    clients = [threading.Thread(target=send) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert set(statuses) == {503, 504}


def test_requests_over_grpc_have_the_same_bound(bounded: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        bounded.predict(x=np.zeros(10_000, np.float32))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "--request_memory_bytes" in refused.value.details()
    assert len(bounded.predict(x=np.zeros(10, np.float32)).outputs["y"].float_val) == 10
