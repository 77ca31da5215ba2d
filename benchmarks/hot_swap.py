"""Do clients notice when one version replaces another?

A model of 500 MB is swapped again and again while 8 clients in C++ send so much that the machine's
CPUs, clients included, are busy half of the time. A swap begins when the directory of the new
version appears and ends when the old version is unloaded. Latencies count from when a request was
due. The usual p99 is the median of the p99s of windows of a tenth of a second.

    python benchmarks/hot_swap.py [--swaps 200] [--megabytes 500] [--json F]

The versions are links to the same files; the model spec of a reply shows which one answered.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import grpc
import numpy as np
import serving_load
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
)

MODEL = "swapped"
COLUMNS = 64
LOOK_SECONDS = 0.02
# Between two swaps, for latencies without one.
PAUSE_SECONDS = 1.0
AVAILABLE, END = 30, 50


def save_model(path: Path, megabytes: int) -> None:
    """Writes a model that gathers rows of one large variable and adds a small MLP."""
    random = np.random.default_rng(0)
    rows = megabytes * 1_000_000 // (4 * COLUMNS)
    module = tf.Module()
    module.table = tf.Variable(random.normal(size=(rows, COLUMNS)).astype(np.float32))
    module.kernel = tf.Variable(random.normal(size=(COLUMNS, 1)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "row")])  # type: ignore[untyped-decorator]
    def score(row: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": tf.sigmoid(tf.gather(module.table, row % rows) @ module.kernel)}

    tf.saved_model.save(module, str(path), signatures={"serving_default": score})


def link_version(source: Path, base: Path, version: int) -> None:
    """Makes a version's directory of links, all at once."""
    new = base / ".new"
    shutil.copytree(source, new, copy_function=os.link)
    new.rename(base / str(version))


def resident_bytes(pid: int) -> int:
    """Returns a process's resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def executable_of(pids: list[int]) -> int:
    """Returns the process among these that answers predictions."""
    (found,) = (p for p in pids if Path(f"/proc/{p}/comm").read_text().startswith("hotrow-server"))
    return found


class Swaps:
    """Swaps versions and notes when each was seen to begin, to serve, and to have ended."""

    def __init__(self, address: str, source: Path, base: Path) -> None:
        self._stub = model_service_pb2_grpc.ModelServiceStub(grpc.insecure_channel(address))
        self._source = source
        self._base = base
        self.times: list[tuple[int, int, int, int]] = []

    def swap(self, version: int) -> None:
        """Replaces the version before this one."""
        begun = time.time_ns()
        link_version(self._source, self._base, version)
        available = self._wait(version, AVAILABLE)
        ended = self._wait(version - 1, END)
        shutil.rmtree(self._base / str(version - 1))
        self.times.append((version, begun, available, ended))

    def pause(self) -> None:
        """Looks as often as during a swap, for latencies without one."""
        end = time.monotonic() + PAUSE_SECONDS
        while time.monotonic() < end:
            self._status()
            time.sleep(LOOK_SECONDS)

    def _status(self) -> Any:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = MODEL
        return self._stub.GetModelStatus(request, timeout=60)

    def _wait(self, version: int, state: int) -> int:
        while True:
            for entry in self._status().model_version_status:
                if entry.version == version and entry.state == state:
                    return time.time_ns()
                if entry.version == version and entry.status.error_code:
                    raise click.ClickException(entry.status.error_message)
            time.sleep(LOOK_SECONDS)


def percentiles(nanos: Any) -> tuple[float, float, float]:
    """Returns median, 99th percentile and maximum in microseconds."""
    if nanos.size == 0:
        return (float("nan"),) * 3
    return (
        float(np.median(nanos)) / 1e3,
        float(np.percentile(nanos, 99)) / 1e3,
        float(nanos.max()) / 1e3,
    )


def evaluate(records: Any, swaps: Swaps) -> dict[str, float]:
    """Returns failures and latencies of the clients, during swaps and outside."""
    due, sent, nanos, version = records.T
    inside = np.zeros(due.size, bool)
    wrong = 0
    for number, begun, available, ended in swaps.times:
        inside |= (due >= begun) & (due <= ended)
        # Sent after the swap was reported, but answered by an older version.
        wrong += int(((sent > available) & (version >= 0) & (version < number)).sum())
    p50_in, p99_in, most_in = percentiles(nanos[inside])
    p50_out, p99_out, most_out = percentiles(nanos[~inside])
    usual_in = serving_load.usual_p99(due[inside], nanos[inside])
    usual_out = serving_load.usual_p99(due[~inside], nanos[~inside])
    return {
        "requests": float(due.size),
        "failed": float((version < 0).sum()),
        "answered by an older version": float(wrong),
        "p50 outside, us": p50_out,
        "p50 during a swap, us": p50_in,
        "p99 outside, us": p99_out,
        "p99 during a swap, us": p99_in,
        "p99 ratio": p99_in / p99_out,
        "usual p99 outside, us": usual_out / 1e3,
        "usual p99 during a swap, us": usual_in / 1e3,
        "usual p99 ratio": usual_in / usual_out,
        "slowest outside, us": most_out,
        "slowest during a swap, us": most_in,
    }


@click.command()
@click.option("--swaps", "count", default=200, show_default=True)
@click.option("--megabytes", default=500, show_default=True, help="Of the model.")
@click.option("--clients", default=8, show_default=True)
@click.option("--busy", default=0.5, show_default=True, help="Share of time of the CPUs.")
@click.option("--rate", type=float, help="Requests/s, instead of what keeps the CPUs so busy.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    count: int,
    megabytes: int,
    clients: int,
    busy: float,
    rate: float | None,
    json_path: Path | None,
) -> None:
    """Swaps versions under load, and prints what the clients saw."""
    click.echo(f"machine    {platform.machine()}, {os.cpu_count()} cores")
    click.echo(f"CPUs away  {serving_load.stalls()}")
    click.echo(f"date       {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serving_load.build(folder)
        source, base = folder / "source", folder / MODEL
        save_model(source, megabytes)
        base.mkdir()
        link_version(source, base, 1)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = MODEL
        request.inputs["row"].CopyFrom(tf.make_tensor_proto(np.arange(100, dtype=np.int64)))
        (folder / "request").write_bytes(request.SerializeToString())
        flags = ["--file_system_poll_wait_seconds=0.1"]
        with serving_load.server("hotrow", base, MODEL, flags) as (address, pids):
            full = serving_load.measure(folder, address, pids, folder / "request", clients, 5)
            load_of = serving_load.clients_of(folder, address, folder / "request", clients)
            if rate is None:
                rate = serving_load.find_rate(folder, load_of, full["requests_per_s"], busy)
            click.echo(
                f"{clients} clients: {full['requests_per_s']:.0f} requests/s at full load, "
                f"{rate:.0f} from here on"
            )
            load = subprocess.Popen(
                [
                    *(folder / "paced_load", address, folder / "request", str(clients)),
                    *(str(rate), folder / "records"),
                ],
                stdin=subprocess.PIPE,
            )
            swaps, resident = Swaps(address, source, base), []
            server = executable_of(pids)
            with click.progressbar(range(2, count + 2), label="swaps") as versions:
                for version in versions:
                    swaps.pause()
                    swaps.swap(version)
                    resident.append(resident_bytes(server))
            assert load.stdin is not None
            load.stdin.close()
            if load.wait():
                raise click.ClickException("the clients ended with a failure")
        records = np.fromfile(folder / "records", np.int64).reshape(-1, 4)
    results = evaluate(records, swaps)
    late = np.array(resident[-min(100, max(1, count // 2)) :]) / 1e6
    results |= {
        "seconds a swap": float(np.median([(t[3] - t[1]) / 1e9 for t in swaps.times])),
        "RSS, median of the last, MB": float(np.median(late)),
        "RSS, last half of those to first half": float(
            np.median(late[late.size // 2 :]) / np.median(late[: max(1, late.size // 2)])
        ),
        "RSS, most to least of the last": float(late.max() / late.min()),
    }
    for key, value in results.items():
        click.echo(f"{key:<42}{value:>14,.2f}")
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
