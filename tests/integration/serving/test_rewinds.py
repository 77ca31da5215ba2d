"""Servers whose store goes back in time: noticed within a second, announced, never mixed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.serving.cut_servers import CACHE, folders_of, metrics, paused
from integration.serving.health_probe import probe
from integration.serving.marked_rows import KEYS, TEMPORARY, MarkedModel, ask, cut_of, marked_load
from integration.serving.metrics_page import samples_of
from waiting import wait_until

from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.readers import readers

ALL = np.arange(KEYS + TEMPORARY, dtype=np.int64)
LABELS = '{model_name="m",version="1"}'
# Below a second; the rest is for a busy machine.
NOTICED_SECONDS = 5.0


@pytest.fixture
def redis(redis_servers: Any) -> Any:
    """A Redis whose RDB can be brought back."""
    return redis_servers.standalone()


@pytest.fixture
def model(redis: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in that Redis."""
    made = MarkedModel(tmp_path / "models", redis.url)
    yield made
    made.close()


def fold_and_forget_layers(model: MarkedModel, server: Any) -> None:
    """Folds all cuts, and waits until the server reads their rows from the store."""
    model.fold()
    marks = model.store.watermarks(model.generation)
    assert int(marks.min()) == cuts_of(model.store.records, model.generation)[-1].version
    time.sleep(1.5)  # it looks for folded cuts every half a second


def wait_until_noticed(server: Any) -> float:
    """Returns after how many seconds the metric says that the store is behind."""
    began = time.monotonic()
    behind = f"hotrow_store_is_behind{LABELS}"  # not there before the server's first look
    wait_until(lambda: samples_of(server).get(behind) == 1, lambda: samples_of(server))
    return time.monotonic() - began


def assert_announced(server: Any) -> None:
    samples = samples_of(server)
    assert samples[f"hotrow_store_is_behind{LABELS}"] == 1
    assert samples[f"hotrow_cuts_are_stale{LABELS}"] == 1
    assert samples[f"hotrow_store_rewinds_total{LABELS}"] >= 1
    wait_until(lambda: "models_ahead_of_their_store" in probe(server)[1], lambda: probe(server))
    status, body = probe(server)
    assert (status, body["models_ahead_of_their_store"]) == (200, ["m"])
    server.wait_for_log("the store went back in time and has lost")


def assert_repaired(server: Any, model: MarkedModel, cut: CutRecord, number: int) -> None:
    wait_until(lambda: cut.version in model.noted())
    wait_until(lambda: samples_of(server)[f"hotrow_store_is_behind{LABELS}"] == 0)
    assert cut_of(server) == number
    assert ask(server, ALL).stale is None
    assert samples_of(server)[f"hotrow_cuts_are_stale{LABELS}"] == 0


@pytest.mark.parametrize(
    ("back_to", "after"),
    [
        ("before the commit", "the take"),
        ("before the commit", "the fold"),
        pytest.param("before the fold", "the take", marks=pytest.mark.slow),
        ("before the fold", "the fold"),
        pytest.param("before the fold", "a later fold", marks=pytest.mark.slow),
    ],
)
def test_a_cut_whose_store_goes_back_is_shown_whole_and_announced(
    back_to: str, after: str, redis: Any, model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    behind = f"hotrow_store_is_behind{LABELS}"
    wait_until(lambda: samples_of(server).get(behind) == 0, lambda: samples_of(server))
    snapshot = redis.snapshot()
    cut = model.write(1)
    model.wait_until_noted(cut)
    if back_to == "before the fold":
        snapshot = redis.snapshot()
    if after != "the take":
        fold_and_forget_layers(model, server)
    shown = 1
    if after == "a later fold":
        shown = 2
        cut = model.write(2)
        model.wait_until_noted(cut)
        fold_and_forget_layers(model, server)
    with marked_load(server) as load:
        load.wait_for(shown)
        redis.go_back(snapshot)
        if back_to == "before the commit" or after == "a later fold":
            assert wait_until_noticed(server) < NOTICED_SECONDS
            assert_announced(server)
        elif after == "the fold":  # the store has the cut, but not its rows any more
            wait_until(lambda: samples_of(server)[f"hotrow_store_rewinds_total{LABELS}"] == 1)
        else:
            time.sleep(2.0)  # the store has all of it
        wait_until(lambda: not ask(server, ALL).failure)
        assert cut_of(server) == shown  # every row, also those that are not cached
        healed = model.write(shown + 1, since=0)
        assert healed.version > cut.version
        load.wait_for(shown + 1)
        assert_repaired(server, model, healed, shown + 1)
        model.fold()
        time.sleep(1.0)
        assert cut_of(server) == shown + 1
    assert all(text.startswith("UNAVAILABLE") for text in load.failures()), load.failures()[:3]


def test_rows_that_are_gone_are_refused_and_never_those_of_before(
    redis: Any, model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    snapshot = redis.snapshot()
    model.write(1)
    model.fold()
    # It begins with the folded cut, whose rows it has in no file.
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    assert cut_of(server) == 1
    with marked_load(server) as load:
        redis.go_back(snapshot)
        assert wait_until_noticed(server) < NOTICED_SECONDS
        assert_announced(server)
        wait_until(lambda: "went back in time" in ask(server, ALL).failure)
        time.sleep(0.5)
        healed = model.write(2, since=0)
        assert_repaired(server, model, healed, 2)
    assert load.cuts() <= {1, 2}


def test_a_server_that_starts_over_a_store_that_went_back_shows_what_is_there_whole(
    redis: Any, model: MarkedModel, start_server: Any
) -> None:
    snapshot = redis.snapshot()
    first = model.write(1)
    model.fold()
    redis.go_back(snapshot)
    late = start_server("m", model.path, *CACHE)
    late.wait_ready()
    assert cut_of(late) == 0
    again = model.write(1)
    assert again.version > first.version
    assert again.identity != first.identity
    model.wait_until_noted(again)
    assert cut_of(late) == 1


def test_a_cut_of_the_same_number_with_another_identity_is_another_cut(
    redis: Any, model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    cut = model.write(1)
    model.wait_until_noted(cut)
    (folder,) = folders_of(server)
    before = {path.name for path in folder.iterdir()}
    name = f"cut/{model.generation.generation}/{cut.version:016x}"
    text = model.store.records.get(name)
    assert text is not None
    with paused(server):
        other = text.replace(cut.identity, "b" * 32)
        record = model.store.records.get("model/m")
        assert record is not None
        token = json.loads(record)["token"]
        changes = [(name, text, other), ("model/m", record, record.replace(token, "c" * 32))]
        assert model.store.records.swap_all(changes)

    def noted() -> list[str]:
        generation = model.generation.generation
        return [reader.identity for reader in readers(model.store.records, generation)]

    wait_until(lambda: noted() == ["b" * 32], noted)
    assert before.isdisjoint(path.name for path in folder.iterdir() if "b" * 32 in path.name)
    assert any("b" * 32 in path.name for path in folder.iterdir())
    assert samples_of(server)[f"hotrow_store_rewinds_total{LABELS}"] == 1
    assert cut_of(server) == 1


def test_a_rewind_that_was_repaired_before_it_was_noticed_is_taken_over(
    redis: Any, model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    snapshot = redis.snapshot()
    model.wait_until_noted(model.write(1))
    with paused(server):
        redis.go_back(snapshot)
        healed = model.write(2, since=0)
    assert_repaired(server, model, healed, 2)


@pytest.mark.slow
def test_an_append_only_file_that_lost_its_tail_is_noticed(
    redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "always"})
    model = MarkedModel(tmp_path / "models", redis.url)
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    (file,) = (redis.folder / "appendonlydir").glob("*.incr.aof")
    model.wait_until_noted(model.write(1))
    size = file.stat().st_size
    model.wait_until_noted(model.write(2))
    fold_and_forget_layers(model, server)
    redis.kill()
    os.truncate(file, size + 1000)  # amid the second cut
    redis.restart()
    assert wait_until_noticed(server) < NOTICED_SECONDS
    assert_announced(server)
    wait_until(lambda: not ask(server, ALL).failure)
    assert cut_of(server) == 2
    assert model.store.records.get("export/m") is not None  # of the export of that moment
    assert_repaired(server, model, model.write(3, since=0), 3)
    model.close()


@pytest.mark.slow
@pytest.mark.parametrize("after", ["the take", "the fold"])
def test_a_replica_that_was_behind_takes_over_the_records(
    after: str, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    """The primary that holds the control records dies with writes that it has acknowledged."""
    # So that a replica may take over that has just been started, however old its rows are.
    cluster = redis_servers.cluster(settings={"cluster-replica-validity-factor": 0})
    model = MarkedModel(tmp_path / "models", cluster.url)
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    slot = cluster.call(cluster.nodes[0], "CLUSTER", "KEYSLOT", "hotrow:{hr}")
    primary = cluster.primary_of(slot)
    replica = cluster.nodes[cluster.nodes.index(primary) + 3]
    assert cluster.call(primary, "WAIT", 1, 5000) == 1
    cluster.call(replica, "SAVE")
    replica.kill()
    cut = model.write(1)
    model.wait_until_noted(cut)
    if after == "the fold":
        fold_and_forget_layers(model, server)
    with marked_load(server) as load:
        load.wait_for(1)
        primary.kill()
        replica.restart()
        cluster.wait_healthy()
        assert wait_until_noticed(server) < NOTICED_SECONDS
        assert_announced(server)
        wait_until(lambda: not ask(server, ALL).failure)
        assert cut_of(server) == 1
        healed = model.write(2, since=0)
        assert healed.version > cut.version
        load.wait_for(2)
        assert_repaired(server, model, healed, 2)
    assert all(text.startswith("UNAVAILABLE") for text in load.failures()), load.failures()[:3]
    model.close()
