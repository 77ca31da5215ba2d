"""Servers and the load on them, for the benchmarks of serving."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import grpc
import numpy as np

PEERS = Path(__file__).parent / "peers"
PYTRITON = Path(__file__).parent.parent / "build" / "peers" / "pytriton"
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
READY_SECONDS = 120
RATE_STEPS = 6
LOOK_SECONDS = 2.0
# Time for the clients of a steady load to open their connections.
CONNECT_SECONDS = 1.0
WINDOW_NANOS = 100_000_000
BATCHING = "max_batch_size { value: 1024 } max_enqueued_batches { value: 1000 }"


def build(folder: Path) -> None:
    """Compiles the clients and the floor."""
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    tensorflow = Path(str(found.origin)).parent
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"],
        stdout=subprocess.PIPE,
        check=True,
    )
    compiler = ["g++", "-O2", "-std=c++17"]
    for client in ("serving_load", "paced_load"):
        subprocess.run(
            [
                *(*compiler, PEERS / f"{client}.cc", "-o", folder / client),
                *flags.stdout.decode().split(),
            ],
            check=True,
        )
    libraries = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
    subprocess.run(
        [
            *(*compiler, f"-I{tensorflow}/include", PEERS / "session_floor.cc"),
            *(tensorflow / name for name in libraries),
            *(f"-Wl,-rpath,{tensorflow}", "-o", folder / "session_floor"),
        ],
        check=True,
    )


def free_port() -> int:
    """Returns a TCP port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server(
    name: str, base: Path, model: str = "mlp", flags: Sequence[str] = (), *, quiet: bool = False
) -> Iterator[tuple[str, list[int]]]:
    """Starts a server; yields its address and its processes.

    Args:
        name: which server.
        base: base path of the model.
        model: its name.
        flags: further flags.
        quiet: whether its log is dropped.
    """
    port = free_port()
    command = {
        "hotrow": [
            *("-m", "hotrow.cli.main", "serve", f"--model_name={model}"),
            *(f"--model_base_path={base}", f"--port={port}", *flags),
        ],
        "grpcio": [str(PEERS / "grpcio_servicer.py"), str(base / "1"), str(port)],
        "pytriton": [str(PEERS / "pytriton_server.py"), "serve", str(base / "1"), str(port)],
    }[name]
    process = subprocess.Popen(
        [str(pytriton_python()) if name == "pytriton" else sys.executable, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet or name == "pytriton" else None,
        # Where Triton's Python finds its library.
        env=os.environ | {"LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))}
        if name == "pytriton"
        else None,
    )
    address = f"127.0.0.1:{port}"
    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(READY_SECONDS)
            if name == "pytriton":
                wait_for_triton(channel)
        yield address, descendants(process.pid)
    finally:
        process.terminate()
        process.wait()


def wait_for_triton(channel: grpc.Channel) -> None:
    """Waits until Triton's port, which opens first, has the model behind it."""
    # ModelReadyRequest{name: "mlp"}, ModelReadyResponse{ready: true}
    ready = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            if ready(b"\x0a\x03mlp", timeout=READY_SECONDS) == b"\x08\x01":
                return
        except grpc.RpcError:
            pass
        time.sleep(0.2)
    raise click.ClickException("Triton does not get ready")


def descendants(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def parent_of(pid: int) -> int:
    """Returns the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    """Returns the children of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(folder.name))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Returns the CPU time that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(
    folder: Path,
    address: str,
    pids: list[int],
    request: Path,
    clients: int,
    seconds: float,
    method: str | None = None,
) -> dict[str, float]:
    """Returns what a server did under load: requests/s, latencies and CPU microseconds each."""
    load = [str(folder / "serving_load"), address, str(request), str(clients), "0"]
    more = [] if method is None else [method]
    subprocess.run([*load, "1", *more], stdout=subprocess.DEVNULL, check=True)
    before, started = cpu_seconds(pids), time.perf_counter()
    done = subprocess.run([*load, str(seconds), *more], stdout=subprocess.PIPE, check=True)
    used, wall = cpu_seconds(pids) - before, time.perf_counter() - started
    report = json.loads(done.stdout)
    if report["failures"]:
        raise click.ClickException(f"{report['failures']} requests failed at {address}")
    return {
        "cpu_us": 1e6 * used / report["requests"],
        "p50_us": report["p50"],
        "p99_us": report["p99"],
        "requests_per_s": report["requests"] / wall,
    }


def cpu_ticks() -> tuple[int, int]:
    """Returns the busy time of the machine's CPUs, and their busy and idle time together."""
    user, nice, system, idle, iowait, *others = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    busy = user + nice + system + sum(others)
    return busy, busy + idle + iowait


def clients_of(folder: Path, address: str, request: Path, clients: int) -> list[str]:
    """Returns the command of clients that send at a steady rate, to gRPC or to a path of REST."""
    return [str(part) for part in (folder / "paced_load", address, request, clients)]


def measure_steady(
    folder: Path, command: Sequence[str], rate: float, seconds: float
) -> dict[str, float]:
    """Returns latencies under a load that does not wait for answers, and how busy the CPUs were.

    Args:
        folder: for the records.
        command: of the load, which takes a rate and a file for its records.
        rate: of requests, per second.
        seconds: of the load.
    """
    records = folder / "records"
    load = subprocess.Popen(
        [*command, str(rate), str(records)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert load.stdout is not None
    load.stdout.readline()
    time.sleep(CONNECT_SECONDS)
    before = cpu_ticks()
    time.sleep(seconds)
    after = cpu_ticks()
    load.communicate()
    if load.returncode:
        raise click.ClickException("the clients ended with a failure")
    due, _, nanos, result = np.fromfile(records, np.int64).reshape(-1, 4).T
    if (result < 0).any():
        raise click.ClickException(f"{(result < 0).sum()} requests failed")
    counted = due > due.min() + 1e9 * CONNECT_SECONDS
    micros = nanos[counted] / 1e3
    p50, p99, p999 = np.percentile(micros, (50, 99, 99.9))
    return {
        "requests_per_s": rate,
        "busy": (after[0] - before[0]) / (after[1] - before[1]),
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
        "usual_p99_us": usual_p99(due[counted], nanos[counted]) / 1e3,
    }


def usual_p99(due: Any, nanos: Any) -> float:
    """Returns the median of the 99th percentiles of short windows.

    If the host takes a CPU away for some milliseconds, a few times a second, that decides the
    percentile of all requests, but not the percentiles of most windows.
    """
    window = (due - due.min()) // WINDOW_NANOS
    each = [np.percentile(nanos[window == w], 99) for w in np.unique(window)]
    return float(np.median(each))


def stalls() -> str:
    """Returns how long an idle machine withholds a CPU from a busy thread, as a share of time."""
    code = (
        "import os, sys, time\n"
        "os.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "last = start = time.perf_counter()\n"
        "gaps = []\n"
        "while last < start + 3:\n"
        "    now = time.perf_counter()\n"
        "    if now - last > 5e-4: gaps.append(now - last)\n"
        "    last = now\n"
        "print(sum(gaps) / 3, max(gaps, default=0.0))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(cpu)], stdout=subprocess.PIPE)
        for cpu in sorted(os.sched_getaffinity(0))
    ]
    metrics = np.array([process.communicate()[0].split() for process in running], float)
    return f"{metrics[:, 0].mean():.1%} of the time, at most {1e3 * metrics[:, 1].max():.1f} ms"


def find_rate(folder: Path, command: Sequence[str], most: float, share: float) -> float:
    """Returns the rate of requests/s at which the CPUs are busy for a share of the time.

    Args:
        folder: where the clients are.
        command: of the load, as for `measure_steady`.
        most: the rate in a closed loop, where no pauses add to the work of a request.
        share: of the time.
    """
    low, high = 0.0, most
    for _ in range(RATE_STEPS):
        rate = (low + high) / 2
        if measure_steady(folder, command, rate, LOOK_SECONDS)["busy"] < share:
            low = rate
        else:
            high = rate
    return (low + high) / 2


def pytriton_python() -> Path:
    """Returns the interpreter that has PyTriton."""
    return PYTRITON / "bin" / "python"
