"""Events and requests of the benchmark of freshness; each kind is sent by a process of its own.

Clients have a real-time policy, as if they had a machine of their own: else their own wait for the
trainer's time slice, which ends at a tick of 4 ms, would count as the server's.

python benchmarks/fresh_traffic.py write FILE RATE SECONDS
python benchmarks/fresh_traffic.py probe ADDRESS SECONDS    # prints JSON
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
import grpc
import numpy as np
import numpy.typing as npt
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

Ints = npt.NDArray[np.int64]

KEYS = 200_000
"""Of each feature."""


def go_first() -> None:
    """Lets this thread, and threads that it starts, run before those without a real-time policy.

    Raises:
        PermissionError: it needs CAP_SYS_NICE.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def write_events(path: Path, rate: float, seconds: float) -> None:
    """Appends events at a rate."""
    random = np.random.default_rng(0)
    began, written = time.time(), 0
    with path.open("a") as file:
        while time.time() < began + seconds:
            due = int((time.time() - began) * rate) - written
            if due <= 0:
                time.sleep(0.005)
                continue
            file.write(event_lines(random, due, time.time()))
            file.flush()
            written += due


def event_lines(random: np.random.Generator, count: int, now: float) -> str:
    """Returns events of one moment as JSON lines."""
    users, items = random.integers(0, KEYS, (2, count))
    return _lines(random, users, items, now)


def every_key(random: np.random.Generator, now: float) -> str:
    """Returns events of one moment, one of each key of each feature, as JSON lines."""
    return _lines(random, random.permutation(KEYS), random.permutation(KEYS), now)


def _lines(random: np.random.Generator, users: Ints, items: Ints, now: float) -> str:
    clicked = random.integers(0, 2, len(users))
    return "".join(
        f'{{"time":{now:.3f},"clicked":{c},"price":0.5,"user":{u},"item":{i}}}\n'
        for c, u, i in zip(clicked, users, items, strict=True)
    )


def request(rows: int, random: np.random.Generator) -> predict_pb2.PredictRequest:
    """Returns a request of rows with keys drawn evenly."""
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "fresh"
    for name in ("user", "item"):
        tensor = message.inputs[name]
        tensor.dtype = 9
        tensor.tensor_shape.dim.add(size=rows)
        tensor.int64_val.extend(random.integers(0, KEYS, rows).tolist())
    tensor = message.inputs["price"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=rows)
    tensor.float_val.extend([0.5] * rows)
    return message


def probe(address: str, seconds: float) -> list[tuple[float, float]]:
    """Returns (time, score) of each answer that differs from the one before."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(address))
    message = request(1, np.random.default_rng(7))
    found: list[tuple[float, float]] = []
    end = time.time() + seconds
    while time.time() < end:
        score = stub.Predict(message, timeout=5.0).outputs["scores"].float_val[0]
        if not found or found[-1][1] != score:
            found.append((time.time(), score))
        time.sleep(0.002)
    return found


@click.group()
def main() -> None:
    """Sends one kind of traffic."""


@main.command(name="write")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("rate", type=float)
@click.argument("seconds", type=float)
def _write(path: Path, rate: float, seconds: float) -> None:
    write_events(path, rate, seconds)


@main.command(name="probe")
@click.argument("address")
@click.argument("seconds", type=float)
def _probe(address: str, seconds: float) -> None:
    go_first()
    click.echo(json.dumps(probe(address, seconds)))


if __name__ == "__main__":
    main()
