"""What does a prediction over REST cost a server, beside gRPC, and is its tail flat?

The MLP of serving_overhead.py, row form. wrk sends over REST from 8 connections, a program in C++
over gRPC; the CPU time is that of the server's processes, from /proc, in the same seconds. Beside
them the floors: TF_SessionRun in the caller's thread, and simdjson's bare parse of the body.

    apt-get install wrk libsimdjson-dev openssl
    python benchmarks/rest_overhead.py [--rows 1,128,1024] [--seconds 5] [--json F]
    PYTHONPATH=OTHER/platform python benchmarks/rest_overhead.py    # another version of Hotrow

Last, one protocol after the other gets a steady load that keeps the machine's CPUs, clients
included, 70 % busy, and so does the bare session: latencies count from when a request was due.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import serving_load
import serving_overhead

CONNECTIONS = 8
STEADY_SHARE = 0.7
PATH = "/v1/models/mlp:predict"
# Of CPU above gRPC's at one row, of the sum of both floors at 128 rows, of the floor's p99/p50.
GOALS = {"one row": 60, "128 rows": 1.5, "tail": 1.5}


def wrk(folder: Path, url: str, body: Path, seconds: float) -> dict[str, float]:
    """Returns how many requests were answered, and the median latency in microseconds."""
    script = folder / "post.lua"
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = io.open("{body}"):read("*a")\n'
        "function done(summary, latency)\n"
        '  print(string.format("summary %d %d %d", summary.requests, latency:percentile(50), '
        "latency:percentile(99)))\nend\n"
    )
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", str(script), url]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = re.search(r"summary (\d+) (\d+) (\d+)", done.stdout)
    if found is None or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise click.ClickException(f"requests failed at {url}: {done.stdout}")
    return {"requests": float(found[1]), "p50_us": float(found[2]), "p99_us": float(found[3])}


def measure_rest(
    folder: Path, url: str, pids: Sequence[int], body: Path, seconds: float
) -> dict[str, float]:
    """Returns what a server did under load over REST, as `serving_load.measure` for gRPC."""
    wrk(folder, url, body, 1)
    before = serving_load.cpu_seconds(list(pids))
    done = wrk(folder, url, body, seconds)
    used = serving_load.cpu_seconds(list(pids)) - before
    return {
        "cpu_us": 1e6 * used / done["requests"],
        "p50_us": done["p50_us"],
        "p99_us": done["p99_us"],
        "requests_per_s": done["requests"] / seconds,
    }


def write_body(path: Path, rows: int) -> int:
    """Writes a body in row form; returns its length in bytes."""
    values = np.random.default_rng(rows).normal(size=(rows, serving_overhead.COLUMNS))
    path.write_text(json.dumps({"instances": values.astype(np.float32).tolist()}))
    return path.stat().st_size


def write_tls(folder: Path) -> list[str]:
    """Writes a certificate; returns the flags for TLS of the REST port."""
    key, certificate = folder / "key", folder / "certificate"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", key),
            *("-out", certificate),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    texts = {"server_key": key.read_text(), "server_cert": certificate.read_text()}
    (folder / "tls").write_text("\n".join(f"{name}: {json.dumps(t)}" for name, t in texts.items()))
    return [f"--rest_api_ssl_config_file={folder / 'tls'}"]


def floor(command: Sequence[Any]) -> float:
    """Returns the CPU microseconds that a floor's program prints."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout)["cpu_us"])


@click.command()
@click.option("--rows", default="1,128,1024", show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each measurement.")
@click.option("--tail/--no-tail", default=True, help="Whether the tail is measured, too.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(rows: str, seconds: float, tail: bool, json_path: Path | None) -> None:
    """Measures predictions over REST and gRPC, and prints a table."""
    if shutil.which("wrk") is None:
        raise click.ClickException("wrk is not installed: apt-get install wrk")
    click.echo(f"machine    {platform.machine()}, {os.cpu_count()} cores")
    click.echo(f"CPUs away  {serving_load.stalls()}")
    click.echo(f"date       {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    counts = [int(count) for count in rows.split(",")]
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serving_load.build(folder)
        subprocess.run(
            [
                *("g++", "-O3", "-std=c++17", serving_load.PEERS / "json_floor.cc", "-lsimdjson"),
                *("-o", folder / "json_floor"),
            ],
            check=True,
        )
        version, feed, fetch = serving_overhead.save_model(folder / "mlp")
        session = [folder / "session_floor", version, feed, fetch]
        parses, runs = {}, {}
        for count in counts:
            size = write_body(folder / f"body{count}", count)
            serving_overhead.write_request(folder / f"request{count}", count)
            runs[count] = floor([*session, count, serving_overhead.COLUMNS, 3])
            parses[count] = floor([folder / "json_floor", folder / f"body{count}", 3])
            click.echo(
                f"{count} rows, {size / 1e3:.0f} kB of JSON: a run {runs[count]:.0f} us, the bare "
                f"parse {parses[count]:.0f} us"
            )
        click.echo(f"\n{'':<24}{''.join(f'{metric:>16}' for metric in METRICS)}")
        for case in ("gRPC", "REST", "REST, TLS"):
            port = serving_load.free_port()
            flags = [f"--rest_api_port={port}"]
            if case == "REST, TLS":
                flags += write_tls(folder)
            with serving_load.server("hotrow", folder / "mlp", flags=flags) as (address, pids):
                scheme = "https" if case == "REST, TLS" else "http"
                url = f"{scheme}://127.0.0.1:{port}{PATH}"
                for count in counts:
                    if case == "gRPC":
                        request = folder / f"request{count}"
                        values = serving_load.measure(
                            folder, address, pids, request, CONNECTIONS, seconds
                        )
                    else:
                        body = folder / f"body{count}"
                        values = measure_rest(folder, url, pids, body, seconds)
                    results[f"{case}, {count} rows"] = values
                    texts = "".join(f"{values[metric]:>16.0f}" for metric in METRICS)
                    click.echo(f"{f'{case}, {count} rows':<24}{texts}")
        report_goals(results, runs, parses)
        if tail:
            click.echo()
            measure_tails(folder, counts, session, results, seconds)
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1))


def report_goals(
    results: Mapping[str, Mapping[str, float]],
    runs: Mapping[int, float],
    parses: Mapping[int, float],
) -> None:
    """Prints costs beside their goals."""
    click.echo()
    for count, run in runs.items():
        cost = results[f"REST, {count} rows"]["cpu_us"]
        more = cost - results[f"gRPC, {count} rows"]["cpu_us"]
        ratio = cost / (run + parses[count])
        click.echo(
            f"{count} rows: gRPC's CPU time {more:+.0f} us, {ratio:.2f} times both floors together"
        )
    click.echo(
        f"aimed at: at 1 row gRPC + {GOALS['one row']} us, at 128 {GOALS['128 rows']} times the "
        "floors"
    )


def measure_tails(
    folder: Path,
    counts: Sequence[int],
    session: Sequence[Any],
    results: dict[str, dict[str, float]],
    seconds: float,
) -> None:
    """Prints p99/p50 at a steady load, for the bare session and both protocols."""
    port = serving_load.free_port()
    flags = [f"--rest_api_port={port}"]
    with serving_load.server("hotrow", folder / "mlp", flags=flags) as (address, _):
        for count in counts:
            columns = str(serving_overhead.COLUMNS)
            bare = [*map(str, session), str(count), columns, str(CONNECTIONS)]
            url = f"127.0.0.1:{port}{PATH}"
            request, body = folder / f"request{count}", folder / f"body{count}"
            loads = {
                "floor": bare,
                "gRPC": serving_load.clients_of(folder, address, request, CONNECTIONS),
                "REST": serving_load.clients_of(folder, url, body, CONNECTIONS),
            }
            ratios = {}
            for case, load in loads.items():
                most = 1e6 / floor([*session, count, columns, 2]) * (os.cpu_count() or 1)
                if case != "floor":
                    most = results[f"{case}, {count} rows"]["requests_per_s"]
                rate = serving_load.find_rate(folder, load, most, STEADY_SHARE)
                steady = serving_load.measure_steady(folder, load, rate, 4 * seconds)
                results[f"{case}, {count} rows, steady"] = steady
                ratios[case] = steady["p99_us"] / steady["p50_us"]
                usual = steady["usual_p99_us"] / steady["p50_us"]
                click.echo(
                    f"{f'{case}, {count} rows':<18}{steady['requests_per_s']:>8.0f}/s, CPUs "
                    f"{steady['busy']:.0%} busy: p50 {steady['p50_us']:.0f}, p99 "
                    f"{steady['p99_us']:.0f}, p99.9 {steady['p999_us']:.0f} us; p99/p50 "
                    f"{ratios[case]:.1f}, in most tenths of a second {usual:.1f}, of the floor's "
                    f"{ratios[case] / ratios['floor']:.2f} (aimed at: {GOALS['tail']})"
                )


METRICS = {"cpu_us": "us", "p50_us": "us", "p99_us": "us", "requests_per_s": "1/s"}


if __name__ == "__main__":
    main()
