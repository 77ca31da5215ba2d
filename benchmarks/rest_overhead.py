"""Where does the time of a REST prediction go?

The MLP of serving_overhead.py, row form. wrk sends from 8 connections; the CPU time is that of the
server's processes, from /proc, in the same seconds. Requests that are refused after they were read
measure the cost of HTTP.

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
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import serving_load
import serving_overhead

CONNECTIONS = 8
PREDICT, REFUSED = "/v1/models/mlp:predict", "/v1/models/mlp:nothing"


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
                parts = {
                    "HTTP, with the body": costs[REFUSED][1],
                    "JSON, the model and the rest": costs[PREDICT][1] - costs[REFUSED][1],
                    "control process": costs[PREDICT][0],
                    "all": sum(costs[PREDICT]),
                }
                for part, micros in parts.items():
                    click.echo(f"    {part:<42}{micros:>10.0f}")
                click.echo(
                    f"    {requests / seconds:.0f} requests/s from {CONNECTIONS} connections, "
                    f"p50 {p50:.0f} us"
                )


if __name__ == "__main__":
    main()
