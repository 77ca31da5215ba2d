"""A cache of hot rows is filled before its version serves, at a bounded rate."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration.serving.cut_servers import metrics
from integration.serving.metrics_page import samples_of
from integration.serving.trained_run import export, predict
from redis import Redis


def test_the_cache_is_warm_before_a_version_serves(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    flags = ("--cache_rows=100000", metrics(tmp_path))
    server = start_server("m", tmp_path / "models" / "m", *flags)
    server.wait_ready()
    redis.kill()
    # The keys of this row were never requested.
    assert 0 < predict(server, trained) < 1
    samples = samples_of(server)
    assert samples['hotrow_cache_warmed_rows{model_name="m",version="1"}'] > 1500


@contextlib.contextmanager
def reads_of(redis: Any) -> Iterator[list[tuple[float, int]]]:
    """Records, meanwhile, when pages of rows are read from a Redis, and how many."""
    reads: list[tuple[float, int]] = []
    client = Redis(port=redis.port, socket_timeout=None)
    with client.monitor() as monitor:

        def listen() -> None:
            while "end of reads" not in (command := monitor.next_command())["command"]:
                if command["command"].startswith("MGET "):
                    reads.append((float(command["time"]), command["command"].count(" ")))

        thread = threading.Thread(target=listen)
        thread.start()
        yield reads
        client.echo("end of reads")
        thread.join()
    client.close()


def test_servers_that_start_at_once_warm_up_at_a_bounded_rate(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    rate, window = 800, 0.5
    flags = ("--cache_rows=100000", f"--cache_warm_up_rows_per_second={rate}", metrics(tmp_path))
    with reads_of(redis) as reads:
        servers = [start_server("m", tmp_path / "models" / "m", *flags) for _ in range(2)]
        for server in servers:
            server.wait_ready()
            samples = samples_of(server)
            assert samples['hotrow_cache_warmed_rows{model_name="m",version="1"}'] > 1500
    assert sum(pages for _, pages in reads) > 3000
    most = max(
        sum(pages for at, pages in reads if start <= at < start + window) for start, _ in reads
    )
    pieces = 2 * 2 * rate * 0.02  # of a window's begin and end
    assert most <= 2 * rate * window + pieces
