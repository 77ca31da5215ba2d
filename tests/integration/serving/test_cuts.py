"""Servers take cuts: rows and weights together, without a gap, whatever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import fill_disk_of, free_disk_of
from integration.serving.cut_servers import CACHE, folders_of, layers_of, looks, metrics, paused
from integration.serving.health_probe import probe
from integration.serving.marked_rows import (
    KEYS,
    TEMPORARY,
    MarkedModel,
    ask,
    cut_of,
    marked_load,
    row_of,
)
from integration.serving.metrics_page import PATH as PAGE
from integration.serving.metrics_page import samples_of
from integration.serving.server_processes import control_of, data_plane_of
from integration.store.half_folded import fold_all_but_the_records_of
from redis.exceptions import ResponseError
from waiting import wait_until

from hotrow.serving.updates.cut_follower import RETRY_SECONDS
from hotrow.store.cuts import forget_cuts
from hotrow.store.generations import Generations
from hotrow.store.readers import readers


@pytest.fixture
def model_in(tmp_path: Path) -> Iterator[Callable[[str], MarkedModel]]:
    """Exports a marked model with its rows in the store of a URL."""
    made: list[MarkedModel] = []

    def make(url: str) -> MarkedModel:
        made.append(MarkedModel(tmp_path / "models", url))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
def model(redis_server: Any, model_in: Any) -> MarkedModel:
    """A marked model with its rows in a Redis."""
    made: MarkedModel = model_in(redis_server.url)
    return made


@pytest.mark.parametrize(
    "place",
    [
        "lmdb",
        pytest.param("redis", marks=pytest.mark.slow),
        pytest.param("cluster", marks=pytest.mark.slow),
        "redis, in batches",
        "redis, rows on a GPU",
    ],
)
def test_cuts_are_seen_whole_and_in_order(
    place: str,
    request: Any,
    model_in: Any,
    start_server: Any,
    on_emulated_gpus: dict[str, str],
    tmp_path: Path,
) -> None:
    if place == "lmdb":
        model = model_in(f"file://{tmp_path}/store")
    else:
        fixture = "redis_cluster" if place == "cluster" else "redis_server"
        model = model_in(request.getfixturevalue(fixture).url)
    flags = []
    if "batches" in place:
        parameters = "max_batch_size { value: 400 } batch_timeout_micros { value: 3000 }"
        (tmp_path / "batching").write_text(parameters)
        flags = ["--enable_batching", f"--batching_parameters_file={tmp_path}/batching"]
    variables = {}
    if "GPU" in place:
        flags = ["--cache_device=gpu", "--gpu_cache_bytes=1000000", metrics(tmp_path)]
        variables = on_emulated_gpus
    server = start_server("m", model.path, *CACHE, *flags, variables=variables)
    server.wait_ready()
    assert cut_of(server) == 0
    with marked_load(server) as load:
        for number in range(1, 8):
            cut = model.write(number)
            load.wait_for(number)
            if number in (2, 3, 6):
                model.wait_until_noted(cut)
                model.fold()
    assert load.failures() == []
    assert load.cuts() == set(range(8))
    assert cut_of(server) == 7
    if "GPU" in place:
        samples = samples_of(server)
        assert sum(v for k, v in samples.items() if k.startswith("hotrow_gpu_cache_hits")) > 100


def test_a_server_that_starts_later_begins_with_the_newest_cut(
    model: MarkedModel, start_server: Any
) -> None:
    model.write(1)
    model.fold()
    model.write(2)
    half = start_server("m", model.path, *CACHE)  # one is folded, one is not
    half.wait_ready()
    assert cut_of(half) == 2
    model.wait_until_noted(model.write(3))
    model.fold()
    late = start_server("m", model.path, *CACHE)
    late.wait_ready()
    assert cut_of(late) == 3
    with marked_load(late) as load:
        model.write(4)
        load.wait_for(4)
    assert load.failures() == []
    assert load.cuts() <= {3, 4}
    wait_until(lambda: cut_of(half) == 4)


def test_rows_of_folded_cuts_are_not_hidden_by_an_earlier_cut_that_seems_unfolded(
    model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    for number in (1, 2, 3, 4):  # 1 and 4 change the same rows
        model.wait_until_noted(model.write(number))
    with paused(server):
        fold_all_but_the_records_of(model.store, model.generation, [0])
    unfolded = 'hotrow_unfolded_cuts{model_name="m",version="1"}'
    wait_until(lambda: samples_of(server)[unfolded] == 1)
    end = time.monotonic() + 1.5  # it looks for folded cuts every half a second
    while time.monotonic() < end:
        assert cut_of(server) == 4
    late = start_server("m", model.path, *CACHE)
    late.wait_ready()
    assert cut_of(late) == 4


def test_a_cut_is_looked_for_as_soon_as_it_is_announced(
    model: MarkedModel, redis_server: Any, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    wait_until(lambda: looks(server, "push") == 1)  # it has subscribed
    for number in (1, 2, 3):
        model.wait_until_noted(model.write(number))
        wait_until(lambda n=number: looks(server, "push") == 1 + n)
    assert cut_of(server) == 3
    assert looks(server, "poll") > 0
    assert redis_server.call("CLIENT", "KILL", "TYPE", "pubsub") == 1
    wait_until(lambda: looks(server, "push") == 5)
    model.wait_until_noted(model.write(4))
    wait_until(lambda: looks(server, "push") == 6)


def test_lag_and_size_of_cuts_are_counted_and_leases_name_the_page(
    model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    (reader,) = readers(model.store.records, model.generation.generation)
    assert reader.metrics_url == f"http://127.0.0.1:{server.rest_port}{PAGE}"
    with urllib.request.urlopen(reader.metrics_url, timeout=60) as reply:
        assert b"hotrow_cut_visible_seconds" in reply.read()
    minute_ago = time.time_ns() // 1_000_000 - 60_000
    cuts = [model.write(1, event_ms=minute_ago)]
    model.wait_until_noted(cuts[0])
    with paused(server):
        cuts += [model.write(2, event_ms=minute_ago), model.write(3), model.write(4)]
    model.wait_until_noted(cuts[-1])

    def found(name: str) -> float:
        return samples_of(server).get(f'hotrow_{name}{{model_name="m",version="1"}}', 0)

    wait_until(lambda: found("cuts_coalesced_total") == 2)
    assert found("cuts_taken_total") == 2
    assert found("cut_gaps_total") == 0
    assert found("cut_rows_taken_total") == sum(cut.rows + cut.removed for cut in cuts)
    assert found("cut_bytes_taken_total") == sum(cut.bytes for cut in cuts) > 0
    assert found("cut_visible_seconds_count") == 4
    assert found("cut_visible_seconds_sum") > 0
    assert found("event_visible_seconds_count") == 2
    assert found("event_visible_seconds_sum") > 120


def test_a_damaged_cut_is_reported_once_and_the_one_before_stays(
    model: MarkedModel, redis_server: Any, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    with paused(server):
        cut = model.write(2)
        whole = model.store.staged(model.generation, cut.version, cut.places)
        place = cut.dense_places[0]
        (dense,) = model.store.staged(model.generation, cut.version, [place])
        damaged = dense[:100] + bytes([dense[100] ^ 1]) + dense[101:]
        model.store.stage(model.generation, cut.version, {place: damaged})
    server.wait_for_log(f"cut {cut.version:016x} is not taken")
    with marked_load(server) as load:
        time.sleep(2.0)
        assert load.cuts() == {1}
        refused = [line for line in server.log if "is not taken" in line]
        assert len(refused) == 1
        assert "is damaged" in refused[0]
        # The rows of it are whole, and the next one has weights of its own.
        next_one = model.write(3)
        load.wait_for(3)
        model.wait_until_noted(next_one)
        # Rows that no cut brings again are waited for.
        with paused(server):
            lost = model.write(4)
            blocks = dict(
                zip(
                    lost.places,
                    model.store.staged(model.generation, lost.version, lost.places),
                    strict=True,
                )
            )
            model.store.unstage(model.generation, lost.version, lost.places)
        server.wait_for_log(f"cut {lost.version:016x} is not taken")
        model.store.stage(model.generation, lost.version, blocks)
        load.wait_for(4)
    assert load.failures() == []
    assert load.cuts() == {1, 3, 4}
    assert all(whole)


def test_a_cut_that_is_withdrawn_stays_until_it_comes_again(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    with marked_load(server) as load:
        withdrawn = model.write(2)
        load.wait_for(2)
        model.wait_until_noted(withdrawn)
        # As an export does that finds it damaged.
        forget_cuts(model.store, model.generation, [withdrawn])
        Generations(model.store.records).next_epoch("m")
        time.sleep(1.0)
        assert cut_of(server) == 2
        os.kill(control_of(server), signal.SIGKILL)
        server.wait_for_log("the control process serves again")
        time.sleep(0.5)
        assert cut_of(server) == 2
        cut = model.write(3, since=1)
        load.wait_for(3)
        wait_until(lambda: cut.version in model.noted())
        model.fold()
        time.sleep(1.0)
    assert load.failures() == []
    assert cut_of(server) == 3


def test_a_store_with_a_full_disk_is_reported_once(
    model_in: Any, redis_servers: Any, start_server: Any
) -> None:
    """The server takes what the store has, but cannot note it."""
    redis = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "everysec"})
    model = model_in(redis.url)
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    with paused(server):
        cut = model.write(1)
        fill_disk_of(redis.process.pid, 0)
        wait_until(lambda: refuses_writes(redis))
    server.wait_for_log("cuts cannot be followed")
    assert cut_of(server) == 1
    time.sleep(3 * RETRY_SECONDS)
    assert sum("cuts cannot be followed" in line for line in server.log) == 1
    assert not any("cuts are followed again" in line for line in server.log)
    free_disk_of(redis.process.pid)
    server.wait_for_log("cuts are followed again")
    model.wait_until_noted(cut)


def refuses_writes(redis: Any) -> bool:
    """Returns whether a Redis with a full disk has noticed it; it does once a second."""
    try:
        redis.call("SET", "some", "text")
    except ResponseError as err:
        return "MISCONF" in str(err)
    return False


def test_while_the_store_is_away_answers_go_on_and_say_so(
    model_in: Any, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "always"})
    model = model_in(redis.url)
    server = start_server("m", model.path, "--cache_rows=10000", metrics(tmp_path))
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    model.fold()
    wait_until(lambda: layers_of(server) == 0)
    assert cut_of(server) == 1  # all rows are cached; those of a layer are not
    known = np.arange(KEYS, dtype=np.int64)
    assert ask(server, known).stale is None
    labels = '{model_name="m",version="1"}'
    assert samples_of(server)[f"hotrow_cuts_are_stale{labels}"] == 0
    redis.stop()
    wait_until(lambda: ask(server, known).stale is not None)
    server.wait_for_log("cuts cannot be followed")
    away = (200, {"ready": True, "models_without_their_store": ["m"]})
    wait_until(lambda: probe(server) == away)
    assert samples_of(server)[f"hotrow_cuts_are_stale{labels}"] == 1
    # What is started again needs the cut once more.
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    redis.restart()
    wait_until(lambda: (seen := ask(server, known)).cut == 1 and seen.stale is None)
    server.wait_for_log("cuts are followed again")
    redis.freeze()
    wait_until(lambda: ask(server, known).stale is not None, lambda: ask(server, known))
    redis.thaw()
    cut = model.write(2)
    wait_until(lambda: cut_of(server) == 2)
    model.wait_until_noted(cut)
    wait_until(lambda: ask(server, known).stale is None)


def test_a_server_that_slept_through_cuts_that_are_folded_and_gone_takes_the_newest(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, "--cache_rows=10000")
    server.wait_ready()
    for before, newest in ((0, 3), (4, 7)):
        if before:
            model.wait_until_noted(model.write(before))
        assert cut_of(server) == before  # all rows are cached
        with marked_load(server) as load:
            with paused(server):
                for number in range(before + 1, newest + 1):
                    model.write(number)
                    model.fold()  # as an exporter does when the lease of the server has ended
            load.wait_for(newest)
        assert load.cuts() <= {before, newest}
        assert all("rows of a cut that is not taken yet" in text for text in load.failures())
        assert cut_of(server) == newest


def test_a_cut_of_weights_alone_is_taken(model: MarkedModel, start_server: Any) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    cut = model.write(1, rows=False)
    model.wait_until_noted(cut)
    seen = ask(server, np.array([KEYS + TEMPORARY], np.int64))  # no such row
    assert (seen.cut, seen.wrong) == (1, ())


def test_a_cut_with_the_weights_of_an_earlier_one_is_taken(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    first = model.write(1)
    model.wait_until_noted(first)
    second = model.write(2, same_dense=first)
    model.wait_until_noted(second)
    (folder,) = folders_of(server)
    wait_until(lambda: len(list(folder.glob("*.dense"))) == 1)
    model.fold()
    late = start_server("m", model.path, *CACHE)
    late.wait_ready()
    keys = np.arange(KEYS + TEMPORARY, dtype=np.int64)
    other = [key for key in keys.tolist() if row_of(key, 1) != row_of(key, 2)]
    for one in (server, late):
        seen = ask(one, keys)
        assert seen.cut == 1, "weights"
        wrong = sorted(int(line.split()[1].rstrip(":")) for line in seen.wrong)
        assert wrong == sorted(2 * other), "rows are of the second cut"


def test_a_version_that_is_unloaded_leaves_nothing_of_its_cuts(
    model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, metrics(tmp_path))
    server.wait_ready()
    for number in (1, 2, 3):
        model.wait_until_noted(model.write(number))
        if number == 2:
            model.fold()
    (folder,) = folders_of(server)
    # Rows of all, in case the store loses them, and weights of the third.
    wait_until(lambda: len(list(folder.iterdir())) == 4)
    samples = samples_of(server)
    labels = '{model_name="m",version="1"}'
    assert samples[f"hotrow_cuts_taken_total{labels}"] == 3
    assert samples[f"hotrow_cut_step{labels}"] == 1003
    (version,) = model.noted()
    assert samples[f"hotrow_cut_version{labels}"] == version
    shutil.move(model.path / "1", tmp_path / "away")
    server.wait_for_log("version 1 is unloaded")
    assert model.noted() == []
    assert folders_of(server) == []
    assert f"hotrow_cut_step{labels}" not in samples_of(server)


def test_a_server_whose_store_hangs_ends_in_time(
    model: MarkedModel, redis_server: Any, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    redis_server.freeze()
    try:
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 20.0
    finally:
        redis_server.thaw()
    assert not any("Traceback" in line for line in server.log), server.log


def test_a_version_that_cannot_be_loaded_again_gives_its_lease_back(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path)
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    (model.path / "1" / "saved_model.pb").unlink()
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("version 1 failed to load")
    wait_until(lambda: model.noted() == [])
    assert folders_of(server) == []
