"""Where does the time of a REST prediction go?

The MLP of serving_overhead.py, row form. wrk sends from 8 connections; the CPU time is that of the
server's processes, from /proc, in the same seconds. Then the parts of the control process, which
answers REST: requests that are refused after they were read measure the cost of HTTP; the steps
between are measured alone, in a process of their own.

    apt-get install wrk
    python benchmarks/rest_overhead.py [--rows 1,128] [--seconds 5]
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import serving_load
import serving_overhead
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from hotrow.serving.rest.json_text import parse_object
from hotrow.serving.rest.predict_reply import write_outputs
from hotrow.serving.rest.predict_request import Form, read_inputs

CONNECTIONS = 8
PREDICT, REFUSED = "/v1/models/mlp:predict", "/v1/models/mlp:nothing"
TIMED_SECONDS = 1.0


def load(folder: Path, address: str, path: str, body: Path, seconds: float) -> tuple[float, float]:
    """Returns requests and their median latency in microseconds."""
    script = folder / "post.lua"
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = io.open("{body}"):read("*a")\n'
        "function done(summary, latency)\n"
        '  print(string.format("summary %d %f", summary.requests, latency:percentile(50)))\nend\n'
    )
    done = subprocess.run(
        [
            *("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", script),
            f"http://{address}{path}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    summary = re.search(r"summary (\d+) (\S+)", done.stdout)
    assert summary is not None, done.stdout
    if path == PREDICT and "Non-2xx" in done.stdout:
        raise click.ClickException(f"requests failed at {address}")
    return float(summary[1]), float(summary[2])


def cpu_micros(step: Callable[[], object]) -> float:
    """Returns the CPU time of a step, in microseconds."""
    step()
    count, started = 0, time.perf_counter()
    before = time.process_time()
    while time.perf_counter() < started + TIMED_SECONDS:
        step()
        count += 1
    return 1e6 * (time.process_time() - before) / count


def steps(body: bytes, rows: int) -> dict[str, float]:
    """Returns the CPU time of the steps between HTTP and the executable."""
    info = meta_graph_pb2.TensorInfo(dtype=tf.float32.as_datatype_enum)
    declared = {"x": info}
    parsed = parse_object(body)
    _, inputs = read_inputs(parsed, declared)
    reply = {"scores": tf.make_tensor_proto(np.full((rows, 1), 0.123456, np.float32))}

    def to_request() -> bytes:
        request = predict_pb2.PredictRequest()
        _, tensors = read_inputs(parsed, declared)
        for alias, tensor in tensors.items():
            request.inputs[alias].CopyFrom(tensor)
        return request.SerializeToString()

    assert isinstance(inputs["x"], tensor_pb2.TensorProto)
    return {
        "JSON to values": cpu_micros(lambda: parse_object(body)),
        "values to a request": cpu_micros(to_request),
        "reply to JSON": cpu_micros(lambda: write_outputs(reply, Form.ROW).encode()),
    }


@click.command()
@click.option("--rows", default="1,128", show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each measurement.")
def main(rows: str, seconds: float) -> None:
    """Measures REST predictions, and prints what each part costs."""
    if shutil.which("wrk") is None:
        raise click.ClickException("wrk is not installed: apt-get install wrk")
    click.echo(f"machine    {platform.machine()}, {os.cpu_count()} cores")
    click.echo(f"CPUs away  {serving_load.stalls()}")
    click.echo(f"date       {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serving_overhead.save_model(folder / "mlp")
        port = serving_load.free_port()
        flags = [f"--rest_api_port={port}", "--rest_api_num_threads=16"]
        with serving_load.server("hotrow", folder / "mlp", flags=flags) as (_, pids):
            (executable,) = (
                pid
                for pid in pids
                if Path(f"/proc/{pid}/comm").read_text().startswith("hotrow-server")
            )
            control = [pid for pid in pids if pid != executable]
            for count in map(int, rows.split(",")):
                values = np.random.default_rng(count).normal(size=(count, serving_overhead.COLUMNS))
                text = json.dumps({"instances": np.round(values, 6).tolist()})
                body = folder / f"body{count}"
                body.write_text(text)
                click.echo(
                    f"\n{count} rows, a body of {len(text) / 1e3:.1f} kB, us of CPU a request"
                )
                costs = {}
                for path in (REFUSED, PREDICT):
                    load(folder, f"127.0.0.1:{port}", path, body, 1)
                    before = [serving_load.cpu_seconds(p) for p in (control, [executable])]
                    requests, p50 = load(folder, f"127.0.0.1:{port}", path, body, seconds)
                    after = [serving_load.cpu_seconds(p) for p in (control, [executable])]
                    costs[path] = [
                        1e6 * (b - a) / requests for a, b in zip(before, after, strict=True)
                    ]
                parts = {"HTTP, up to a body in a thread": costs[REFUSED][0]}
                parts |= steps(text.encode(), count)
                in_control = costs[PREDICT][0]
                parts["asking the executable, threads, the rest"] = in_control - sum(parts.values())
                parts["control process"] = in_control
                parts["executable"] = costs[PREDICT][1]
                parts["all"] = sum(costs[PREDICT])
                for part, micros in parts.items():
                    click.echo(f"    {part:<42}{micros:>10.0f}")
                click.echo(
                    f"    {requests / seconds:.0f} requests/s from {CONNECTIONS} connections, "
                    f"p50 {p50:.0f} us"
                )


if __name__ == "__main__":
    main()
