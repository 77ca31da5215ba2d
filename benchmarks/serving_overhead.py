"""What does a Predict request cost a server, beside the run of its model?

One float input of 429 columns through a 256-128-1 MLP. A program in C++ sends requests
in a closed loop, from several connections; the CPU time is that of the server's processes, from
/proc, in the same seconds. Systems take turns in one run:

    floor     TF_SessionRun in the caller's thread, tensors there: no server
    hotrow    `platform serve`: its executable and its control process together
    batched   the same with --enable_batching: at most 1024 rows a batch, no waiting
    grpcio    the plainest grpcio servicer over the loaded signature
    pytriton  NVIDIA Triton around a Python function that runs the loaded signature, in batches;
              its own API, KServe's, with the same values as raw bytes

    python benchmarks/serving_overhead.py --setup
    python benchmarks/serving_overhead.py [--rows 1,128,1024] [--clients 1,8,64] [--json F]

pytriton has a virtual environment in build/peers, made by --setup; without one it is left out.
Last, hotrow alone gets a steady load that keeps the machine's CPUs, clients included, 70 % busy:
latencies count from when a request was due.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import tensorflow as tf
from serving_load import (
    BATCHING,
    MODEL_INFER,
    PEERS,
    PYTRITON,
    build,
    clients_of,
    find_rate,
    measure,
    measure_steady,
    pytriton_python,
    server,
    stalls,
)
from tensorflow_serving.apis import predict_pb2

PYTRITON_PACKAGES = ("nvidia-pytriton==0.7.0", f"tensorflow=={tf.__version__}")
COLUMNS, HIDDEN = 429, (256, 128, 1)
# Goals: microseconds of CPU a request above the floor, by number of rows.
GOALS = {1: 105, 128: 130}
RATIO_GOAL = 8
STEADY_SHARE, STEADY_CLIENTS, TAIL_GOAL = 0.7, 8, 3


def save_model(base: Path) -> tuple[Path, str, str]:
    """Writes the model; returns its version's folder and the names of its two operations."""
    random = np.random.default_rng(0)
    module = tf.Module()
    module.weights = []
    width = COLUMNS
    for units in HIDDEN:
        kernel = random.normal(0, width**-0.5, (width, units)).astype(np.float32)
        module.weights.append((tf.Variable(kernel), tf.Variable(tf.zeros(units))))
        width = units

    @tf.function(input_signature=[tf.TensorSpec([None, COLUMNS], tf.float32, "x")])  # type: ignore[untyped-decorator]
    def score(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for i, (kernel, bias) in enumerate(module.weights):
            x = tf.matmul(x, kernel) + bias
            x = tf.nn.relu(x) if i + 1 < len(HIDDEN) else tf.sigmoid(x)
        return {"scores": x}

    version = base / "1"
    tf.saved_model.save(module, str(version), signatures={"serving_default": score})
    signature = tf.compat.v1.saved_model.load(
        tf.compat.v1.Session(graph=tf.Graph()), ["serve"], str(version)
    ).signature_def["serving_default"]
    names = (signature.inputs["x"].name, signature.outputs["scores"].name)
    return version, *(name.split(":")[0] for name in names)  # type: ignore[return-value]


def set_up() -> None:
    """Makes the peer's virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PYTRITON)], check=True)
    subprocess.run([pytriton_python(), "-m", "pip", "install", *PYTRITON_PACKAGES], check=True)


def write_request(path: Path, rows: int) -> None:
    """Writes serialized requests, of TF Serving's API and, if it is there, of PyTriton's."""
    if pytriton_python().exists():
        subprocess.run(
            [
                *(pytriton_python(), PEERS / "pytriton_server.py"),
                *("request", str(rows), str(COLUMNS), path.with_suffix(".pytriton")),
            ],
            check=True,
        )
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "mlp"
    values = np.random.default_rng(rows).normal(size=(rows, COLUMNS)).astype(np.float32)
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(values))
    path.write_bytes(request.SerializeToString())


@click.command()
@click.option("--rows", default="1,128,1024", show_default=True)
@click.option("--clients", default="1,8,64", show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each measurement.")
@click.option("--setup", is_flag=True, help="Make the peer's virtual environment and stop.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(rows: str, clients: str, seconds: float, setup: bool, json_path: Path | None) -> None:
    """Measures the CPU time and latency of Predict, and prints a table."""
    if setup:
        set_up()
        return
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "model": f"{COLUMNS}-{'-'.join(map(str, HIDDEN))}",
        "seconds": seconds,
        "CPUs away": stalls(),
    }
    for name, value in conditions.items():
        click.echo(f"{name:<10} {value}")
    results: list[dict[str, Any]] = []

    def note(case: str, values: dict[str, float], floor: float) -> None:
        texts = [f"{values.get(m, float('nan')):>12.1f}" for m in METRICS]
        click.echo(f"{case:<34}{''.join(texts)}{values['cpu_us'] - floor:>12.1f}")
        for metric, value in values.items():
            ratio = value / floor if metric == "cpu_us" else None
            results.append(
                {
                    "case": case,
                    "metric": metric,
                    "value": value,
                    "unit": METRICS[metric],
                    "baseline": "floor" if ratio else None,
                    "ratio": ratio,
                }
            )

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build(folder)
        version, feed, fetch = save_model(folder / "mlp")
        click.echo(f"\n{'':<34}{''.join(f'{m:>12}' for m in METRICS)}{'- floor':>12}")
        floors, costs = {}, {}
        for count in map(int, rows.split(",")):
            write_request(folder / f"request{count}", count)
            floor = subprocess.run(
                [folder / "session_floor", version, feed, fetch, str(count), str(COLUMNS), "3"],
                stdout=subprocess.PIPE,
                check=True,
            )
            floors[count] = json.loads(floor.stdout)["cpu_us"]
            note(f"floor, {count} rows", {"cpu_us": floors[count]}, floors[count])
        (folder / "batching").write_text(BATCHING)
        batched = ["--enable_batching", f"--batching_parameters_file={folder / 'batching'}"]
        systems = ["hotrow", "batched", "grpcio"]
        if pytriton_python().exists():
            systems.append("pytriton")
        else:
            click.echo("pytriton: not measured: run --setup")
        for system in systems:
            flags = batched if system == "batched" else []
            method = MODEL_INFER if system == "pytriton" else None
            name = system.replace("batched", "hotrow")
            with server(name, folder / "mlp", flags=flags) as (address, pids):
                for count, floor_us in floors.items():
                    for many in map(int, clients.split(",")):
                        request = folder / f"request{count}"
                        if system == "pytriton":
                            request = request.with_suffix(".pytriton")
                        values = measure(folder, address, pids, request, many, seconds, method)
                        costs[system, count, many] = values["cpu_us"]
                        note(f"{system}, {count} rows, {many} clients", values, floor_us)
        click.echo()
        with server("hotrow", folder / "mlp") as (address, pids):
            for count in floors:
                request = folder / f"request{count}"
                full = measure(folder, address, pids, request, STEADY_CLIENTS, seconds)
                most = full["requests_per_s"]
                load = clients_of(folder, address, request, STEADY_CLIENTS)
                rate = find_rate(folder, load, most, STEADY_SHARE)
                steady = measure_steady(folder, load, rate, 4 * seconds)
                tail, usual = (
                    steady[name] / steady["p50_us"] for name in ("p99_us", "usual_p99_us")
                )
                click.echo(
                    f"{count} rows, {steady['requests_per_s']:.0f} requests/s ({most:.0f} in a "
                    f"closed loop), CPUs {steady['busy']:.0%} busy: p50 {steady['p50_us']:.0f}, "
                    f"p99 {steady['p99_us']:.0f}, p99.9 {steady['p999_us']:.0f} us. p99 is "
                    f"{tail:.1f} times p50, in most tenths of a second {usual:.1f} "
                    f"(aimed at: {TAIL_GOAL})"
                )
    first = int(clients.split(",")[0])
    click.echo()
    for count, floor_us in floors.items():
        ours, plain = costs["hotrow", count, first], costs["grpcio", count, first]
        goal = f" (aimed at: {GOALS[count]})" if count in GOALS else ""
        more = f" (aimed at: {RATIO_GOAL})" if count == 1 else ""
        click.echo(
            f"{count} rows, {first} clients: the floor + {ours - floor_us:.0f} us{goal}; "
            f"{plain / ours:.1f} times the requests of grpcio a CPU second{more}"
        )
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


METRICS = {"cpu_us": "us", "p50_us": "us", "p99_us": "us", "requests_per_s": "1/s"}


if __name__ == "__main__":
    main()
