"""What do clients that misbehave over REST cost the others, and the server's memory?

The MLP of serving_overhead.py. A prober sends one-row requests, 20 a second, over one connection,
while other processes, one kind after the other, hold 1,000 connections to the same port:

    slow     a third sends a head byte by byte, a third a body at 100 bytes/s, a third asks for
             predictions of 128 rows and does not read the replies
    broken   each sends a part of a request and resets its connection, again and again
    lying    lengths of bodies that are too long, too short, negative, twice, or no number
    large    bodies of 4 MB, which together exceed --request_memory_bytes many times

    python benchmarks/rest_abuse.py [--clients 1000] [--seconds 15]

Prints the prober's latencies and failures, and the memory and descriptors of the executable, beside
those before; exits with 1 when a request of the prober failed or the executable ended.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import serving_load
import serving_overhead

PATH = "/v1/models/mlp:predict"
BUDGET = 256 << 20
PROBE_SECONDS = 0.05
# A closed connection's memory goes with the next look at it.
SETTLE_SECONDS = 8.0


def head(length: object, more: str = "") -> bytes:
    """Returns the head of a request."""
    return f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def connect(port: int) -> socket.socket:
    """Returns a connection to the server, which blocks for a second at most."""
    return socket.create_connection(("127.0.0.1", port), timeout=1)


def be_slow(port: int, clients: int, end: float) -> None:
    """Sends and reads as slowly as a server may bear."""
    many = json.dumps({"instances": np.zeros((128, serving_overhead.COLUMNS)).tolist()}).encode()
    held: list[tuple[int, socket.socket, int]] = []
    while time.monotonic() < end:
        started = time.monotonic()
        while len(held) < clients and time.monotonic() < end:
            kind = len(held) % 3
            client = connect(port)
            with contextlib.suppress(OSError):
                if kind == 1:
                    client.sendall(head(60_000))
                elif kind == 2:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    client.sendall(head(len(many)) + many)
            held.append((kind, client, 0))
        kept = []
        for kind, client, sent in held:
            try:
                if kind == 0:
                    client.sendall(head(10)[sent : sent + 1])
                elif kind == 1:
                    client.sendall(b" " * 100)
                kept.append((kind, client, sent + 1))
            except OSError:
                client.close()
        held = kept
        time.sleep(max(0.0, min(end, started + 1) - time.monotonic()))


def break_off(port: int, clients: int, end: float) -> None:
    """Sends parts of requests and resets the connections."""
    whole = head(17) + b'{"inputs": [[1]]}'
    randomly = random.Random(1)
    while time.monotonic() < end:
        held = []
        for _ in range(clients):
            with contextlib.suppress(OSError):
                client = connect(port)
                client.sendall(whole[: randomly.randrange(len(whole) + 1)])
                held.append(client)
        for client in held:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()


def lie(port: int, clients: int, end: float) -> None:
    """Sends bodies of other lengths than announced."""
    body = b'{"inputs": [[1]]}'
    lies = [
        head(2**40) + body,
        head(3) + body,
        head(-1) + body,
        head("many") + body,
        head(17, "Content-Length: 18\r\n") + body,
        head(17, "Transfer-Encoding: chunked\r\n") + body,
        head(17).replace(b"Content-Length: 17", b"Transfer-Encoding: chunked") + b"ffffffff\r\n",
        head(17).replace(b"Content-Length: 17", b"Transfer-Encoding: chunked") + b"-1\r\n" + body,
        head(18) + body,
    ]
    while time.monotonic() < end:
        held = []
        for number in range(clients):
            with contextlib.suppress(OSError):
                client = connect(port)
                client.sendall(lies[number % len(lies)])
                client.shutdown(socket.SHUT_WR)
                held.append(client)
        for client in held:
            with contextlib.suppress(OSError):
                client.recv(65536)
            client.close()


def send_large(port: int, clients: int, end: float) -> None:
    """Sends more than the server takes, from many threads."""
    body = b"{" + b" " * (4 << 20)

    def send() -> None:
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("POST", PATH, body)
                connection.getresponse().read()
                connection.close()

    threads = [threading.Thread(target=send) for _ in range(min(clients, 64))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


KINDS: dict[str, Callable[[int, int, float], None]] = {
    "slow": be_slow,
    "broken": break_off,
    "lying": lie,
    "large": send_large,
}


def abuse(kind: str, port: int, clients: int, seconds: float) -> None:
    """Misbehaves for some time, in a process of its own."""
    os.nice(19)  # its own work is not what is measured
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    KINDS[kind](port, clients, time.monotonic() + seconds)


def probe(port: int, seconds: float) -> tuple[np.ndarray, int]:
    """Returns the milliseconds of each answered request, and how many were not answered."""
    body = json.dumps({"instances": [[0.5] * serving_overhead.COLUMNS]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    millis, failed = [], 0
    end = due = time.monotonic()
    end += seconds
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            connection.request("POST", PATH, body)
            reply = connection.getresponse()
            reply.read()
            failed += reply.status != 200
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        millis.append(1e3 * (time.monotonic() - due))
        due += PROBE_SECONDS
    return np.array(millis), failed


def of_executable(pid: int) -> tuple[float, int]:
    """Returns resident megabytes and open descriptors."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = int(status.split("VmRSS:")[1].split()[0])
    return kilobytes / 1e3, len(os.listdir(f"/proc/{pid}/fd"))


@click.command()
@click.option("--clients", default=1000, show_default=True)
@click.option("--seconds", default=15.0, show_default=True, help="Of each kind.")
def main(clients: int, seconds: float) -> None:
    """Measures a server beside clients that misbehave."""
    click.echo(f"date  {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    click.echo(f"--request_memory_bytes={BUDGET >> 20} MiB, {clients} clients")
    all_failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serving_overhead.save_model(folder / "mlp")
        port = serving_load.free_port()
        flags = [f"--rest_api_port={port}", f"--request_memory_bytes={BUDGET}"]
        with serving_load.server("hotrow", folder / "mlp", flags=flags) as (_, pids):
            (executable,) = (
                pid
                for pid in pids
                if Path(f"/proc/{pid}/comm").read_text().startswith("hotrow-server")
            )
            for kind in ("", *KINDS, ""):
                spawn = multiprocessing.get_context("spawn")
                abuser = spawn.Process(target=abuse, args=(kind, port, clients, seconds + 2))
                if kind:
                    abuser.start()
                    time.sleep(2.0)
                most = 0.0
                found: list[tuple[np.ndarray, int]] = []
                prober = threading.Thread(target=lambda f=found: f.append(probe(port, seconds)))
                prober.start()
                while prober.is_alive():
                    most = max(most, of_executable(executable)[0])
                    prober.join(0.1)
                if kind:
                    abuser.join()
                    time.sleep(SETTLE_SECONDS)
                ((millis, failed),) = found
                all_failed += failed
                p50, p99 = np.percentile(millis, (50, 99))
                after = of_executable(executable)
                click.echo(
                    f"{kind or 'alone':<8}p50 {p50:6.2f}, p99 {p99:6.2f}, slowest "
                    f"{millis.max():6.1f} ms; {failed} of {len(millis)} failed; memory up to "
                    f"{most:.0f} MB, then {after[0]:.0f} MB and {after[1]} descriptors"
                )
    sys.exit(all_failed > 0)


if __name__ == "__main__":
    main()
