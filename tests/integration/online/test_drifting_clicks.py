"""The generator writes events that a stream of a run reads and joins."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from event_runs import reading
from redis_servers.standalone import RedisServer

from hotrow.config import RunConfig, parse_config

MODULE = [sys.executable, "-m", "hotrow.cli.demo.drifting_clicks"]


def run_of(source: str, **online: Any) -> RunConfig:
    columns = ["user", "item", "segment", "category"]
    raw = {
        "name": "clicks",
        "data": {"format": "csv", "train": "none", "label": "click", "batch_size": 100},
        "features": {"sparse": [{"columns": columns, "dim": 4}]},
        "model": {"arch": "logistic"},
        "online": {"source": source, "time": "ts", **online},
    }
    return parse_config(raw, source="test")


def generate(target: str, *options: str) -> None:
    done = subprocess.run(
        [*MODULE, target, *options], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def events_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def without_time(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "ts"}


def test_events_go_to_a_file(tmp_path: Path) -> None:
    log = tmp_path / "clicks.jsonl"
    options = ["--rate", "500", "--seconds", "2", "--seed", "3"]
    generate(str(log), *options, "--speed", "max")
    begun = time.monotonic()
    generate(f"file:{log}", *options, "--speed", "4")
    assert time.monotonic() - begun > 0.4  # two seconds at four times real speed
    with reading(run_of(f"file:{log}"), tmp_path / "dead") as reader:
        while sum(batch.rows.num_rows for batch in reader.batches) < 2000:
            reader.batches.append(reader.stream.next(30.0))
        assert reader.stream.counts()["bad"] == 0
    users = [user for batch in reader.batches for user in batch.rows["user"].to_pylist()]
    assert users[:1000] == users[1000:2000]  # of one seed


def test_one_run_goes_on_where_another_ended_and_times_end_now(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = ["--rate", "500", "--seed", "3"]
    generate(str(whole), *options, "--seconds", "2", "--speed", "max")
    generate(str(parts), *options, "--seconds", "1", "--speed", "max")
    assert 0.0 < time.time() - events_of(parts)[-1]["ts"] < 60.0
    generate(str(parts), *options, "--seconds", "1", "--skip-seconds", "1", "--speed", "4")
    written = events_of(parts)
    assert 0.0 < time.time() - written[-1]["ts"] < 60.0
    assert [without_time(event) for event in written] == list(map(without_time, events_of(whole)))


def test_events_and_labels_go_to_streams(redis_server: RedisServer, tmp_path: Path) -> None:
    url = f"{redis_server.url}?stream=shows&stream=more"
    options = ["--rate", "500", "--seconds", "10", "--speed", "max"]
    generate(f"{redis_server.url}?stream=shows", *options, "--label-delay-seconds", "1")
    join = {"key": "show", "window_seconds": 5.0}
    run = run_of(f"{redis_server.url}?stream=shows", join=join)
    with reading(run, tmp_path / "dead") as reader:
        while sum(batch.rows.num_rows for batch in reader.batches) < 2400:
            reader.batches.append(reader.stream.next(30.0))
        counts = reader.stream.counts()
    assert counts["joined"] > 200
    assert counts["expired"] > 1000
    assert counts["unmatched"] < 20  # clicks after more than five times their mean delay
    redis_server.call("DEL", "shows")
    generate(url, *options, "--keep", "1000")
    lengths = [redis_server.call("XLEN", name) for name in ("shows", "more")]
    assert all(1000 <= int(str(length)) < 1200 for length in lengths)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["redis://127.0.0.1:1?stream=a"], "redis://127.0.0.1:1: "),
        (["redis://127.0.0.1:1"], "name the stream: ?stream=NAME"),
        (["/none/x"], "/none/x: No such file or directory"),
        (["x", "--speed", "fast"], "--speed fast: must be max, or a number above 0"),
    ],
)
def test_a_target_that_cannot_be_written_is_named(
    tmp_path: Path, arguments: list[str], error: str
) -> None:
    done = subprocess.run(
        [*MODULE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1
