"""What clients see while slots of a Redis move, and while it dies, hangs or forgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
import pytest
from integration.serving.cut_servers import metrics
from integration.serving.metrics_page import samples_of
from integration.serving.steady_load import Answer, SteadyLoad, ask, requests_of
from integration.serving.trained_run import export

NODE_TIMEOUT_SECONDS = 2.0
WARM = ("--cache_rows=100000",)
# Long enough for a busy machine: these tests are about failures, not about slowness.
PATIENT = ("--store_timeout_ms=2000",)


@pytest.fixture(scope="module")
def requests(trained: Path) -> list[Any]:
    """Requests of 16 rows each, whose keys were trained."""
    return requests_of(trained / "train.tsv", 40, 16)


@pytest.fixture(scope="module")
def fresh(trained: Path) -> list[Any]:
    """The same of other rows: some of the keys of each are unknown, so they are never cached."""
    return requests_of(trained / "valid.tsv", 18, 16)


@pytest.fixture(scope="module")
def right(
    trained: Path, requests: list[Any], fresh: list[Any], start_shared_server: Any
) -> list[tuple[float, ...]]:
    """The scores of each request, the fresh ones last, with the rows in LMDB."""
    server = start_shared_server("own", trained / "models" / "own")
    server.wait_ready()
    every = [*requests, *fresh]
    answers = [ask(server, every, number) for number in range(len(every))]
    server.terminate()
    scores = [answer.scores for answer in answers if answer.scores is not None]
    assert len(set(scores)) == len(every)
    return scores


@pytest.fixture(scope="module")
def every_key(trained: Path, start_shared_server: Any) -> tuple[list[Any], list[tuple[float, ...]]]:
    """Requests that together read every row there is, and their scores."""
    server = start_shared_server("own", trained / "models" / "own")
    server.wait_ready()
    every = requests_of(trained / "train.tsv", 50, 40)
    answers = [ask(server, every, number) for number in range(len(every))]
    server.terminate()
    return every, [answer.scores for answer in answers if answer.scores is not None]


@pytest.fixture(scope="module")
def cluster(module_redis_servers: Any) -> Any:
    """Three primaries and their replicas."""
    return module_redis_servers.cluster(node_timeout_ms=int(1000 * NODE_TIMEOUT_SECONDS))


@pytest.fixture(scope="module")
def served(
    cluster: Any, trained: Path, start_shared_server: Any, tmp_path_factory: Any
) -> tuple[Any, Any]:
    """Two servers of rows in the cluster: with a cache that holds all of them, and without."""
    folder = tmp_path_factory.mktemp("cluster")
    base = folder / "models"
    export(trained, base, "m", f"--store={cluster.url}")
    warm = start_shared_server("m", base / "m", *WARM, *PATIENT)
    cold = start_shared_server("m", base / "m", *PATIENT, metrics(folder))
    warm.wait_ready()
    cold.wait_ready()
    return warm, cold


def warm_up(server: Any, requests: Sequence[Any], right: Sequence[tuple[float, ...]]) -> None:
    """Brings the rows of the requests into a server's cache."""
    for _ in range(2):
        for number in range(len(requests)):
            assert ask(server, requests, number).scores == right[number]


def wrong(answers: Sequence[Answer], right: Sequence[tuple[float, ...]]) -> list[Answer]:
    """Returns the answers whose scores are others than before."""
    return [a for a in answers if a.scores is not None and a.scores != right[a.request]]


def is_well(load: SteadyLoad) -> bool:
    """Returns whether many requests were answered in the last two seconds, and none failed."""
    since = time.monotonic() - 2.0
    return len(load.answers(since)) > 50 and not load.failures(since)


def total(server: Any, name: str) -> float:
    """Returns the sum of a metric over its labels."""
    return sum(value for key, value in samples_of(server).items() if key.startswith(name + "{"))


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_no_prediction_fails_while_slots_of_a_cluster_move(
    rounds: int,
    cluster: Any,
    served: tuple[Any, Any],
    requests: list[Any],
    right: list[tuple[float, ...]],
    every_key: tuple[list[Any], list[tuple[float, ...]]],
) -> None:
    warm, cold = served
    warm_up(warm, requests, right)
    source, target = cluster.primaries()[:2]
    with SteadyLoad(cold, every_key[0]) as asking, SteadyLoad(warm, requests, clients=1) as cached:
        for _ in range(rounds):
            cluster.move_slots(500, source, target)
            cluster.move_slots(500, target, source)
        # Half a slot here, half there: as long as a large slot takes.
        with cluster.half_moved(source, target) as keys:
            assert keys > 3
            halved = time.monotonic()
            # Each client requests every row, including those that have moved.
            asking.wait_until(lambda: len(asking.answers(halved)) > 5 * len(every_key[0]))
            assert total(cold, "hotrow_store_asked_total") > 0
        moved = time.monotonic()
        asking.wait_until(lambda: len(asking.answers(moved)) > 50)
    for load, scores in ((asking, every_key[1]), (cached, right)):
        assert load.failures() == []
        assert wrong(load.answers(), scores) == []
    assert len(asking.answers()) - len(asking.answers(moved)) > 200
    assert total(cold, "hotrow_store_moved_total") > 0


def test_a_dead_primary_is_not_noticed_with_a_warm_cache_and_soon_forgotten_without(
    cluster: Any, served: tuple[Any, Any], requests: list[Any], right: list[tuple[float, ...]]
) -> None:
    warm, cold = served
    cluster.wait_healthy()
    warm_up(warm, requests, right)
    with SteadyLoad(cold, requests) as asking, SteadyLoad(warm, requests, clients=2) as cached:
        asking.wait_until(lambda: len(asking.answers()) > 50)
        killed = time.monotonic()
        dead = cluster.kill_primary()
        asking.wait_until(lambda: bool(asking.failures(killed)))
        cluster.wait_healthy()  # its replica has taken over
        asking.wait_until(lambda: is_well(asking), NODE_TIMEOUT_SECONDS + 20.0)
    last = max(failure.began + failure.seconds for failure in asking.failures())
    print(f"the last failure came {last - killed:.2f} s after the primary died")
    assert last < killed + NODE_TIMEOUT_SECONDS + 10.0
    assert cached.failures() == []
    assert len(cached.answers(killed)) > 200
    assert {failure.code for failure in asking.failures()} == {grpc.StatusCode.UNAVAILABLE}
    assert asking.failures(killed) == asking.failures()
    for load in (asking, cached):
        assert wrong(load.answers(), right) == []
    dead.restart()
    cluster.wait_healthy()


def test_a_frozen_redis_costs_its_time_budget_until_the_breaker_opens(
    trained: Path,
    requests: list[Any],
    fresh: list[Any],
    right: list[tuple[float, ...]],
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    flags = (*WARM, "--store_timeout_ms=200", metrics(tmp_path))
    server = start_server("m", tmp_path / "models" / "m", *flags)
    server.wait_ready()
    warm_up(server, requests, right)
    redis.freeze()
    frozen = time.monotonic()
    with SteadyLoad(server, fresh) as asking, SteadyLoad(server, requests, clients=2) as cached:
        asking.wait_until(lambda: total(server, "hotrow_store_node_is_shut_out") == 1, 5.0)
        time.sleep(max(0.0, frozen + 3.0 - time.monotonic()))
        assert total(server, "hotrow_store_node_is_shut_out") == 1
        redis.thaw()
        thawed = time.monotonic()
        asking.wait_until(lambda: any(a.scores for a in asking.answers(thawed)), 10.0)
        well = time.monotonic()
        asking.wait_until(lambda: len(asking.answers(well)) > 100)
        assert total(server, "hotrow_store_node_is_shut_out") == 0
    failures = [answer for answer in asking.failures() if answer.began < thawed]
    assert {failure.code for failure in failures} == {grpc.StatusCode.UNAVAILABLE}
    # A request that waited for another request's fetch does not know the node.
    unnamed = {failure.text for failure in failures if redis.address not in failure.text}
    assert all("deadline" in text for text in unnamed), unnamed
    assert any(redis.address in failure.text for failure in failures)
    assert np.quantile([failure.seconds for failure in failures], 0.99) < 0.6
    assert median(f.seconds for f in failures if f.began > frozen + 1.0) < 0.05
    assert asking.failures(well) == []
    assert cached.failures() == []
    assert len(cached.answers(frozen)) - len(cached.answers(thawed)) > 100
    assert wrong(cached.answers(), right) == []
    assert wrong(asking.answers(), right[len(requests) :]) == []


def test_requests_with_cached_rows_do_not_wait_for_a_store_that_others_wait_for(
    trained: Path,
    requests: list[Any],
    fresh: list[Any],
    right: list[tuple[float, ...]],
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    # TensorFlow has one thread for all runs that are not brief.
    flags = (*WARM, *PATIENT, "--tensorflow_inter_op_parallelism=1")
    server = start_server("m", tmp_path / "models" / "m", *flags)
    server.wait_ready()
    warm_up(server, requests, right)
    waiting = []
    for _ in range(3):  # after the first, runs of this signature are not brief
        redis.freeze()
        with ThreadPoolExecutor(8) as pool:
            missing = [pool.submit(ask, server, fresh, number) for number in range(8)]
            time.sleep(0.2)
            cached = [ask(server, requests, number) for number in range(10)]
            waiting.append(sum(not asked.done() for asked in missing))
            redis.thaw()
        assert wrong(cached, right) == []
        assert [answer for answer in cached if answer.scores is None] == []
        late = [asked.result() for asked in missing]
        assert [answer.text for answer in late if answer.scores is None] == []
        assert wrong(late, right[len(requests) :]) == []
    assert waiting == [8, 8, 8]


def test_a_redis_that_forgot_its_rows_changes_no_score_silently(
    trained: Path,
    requests: list[Any],
    fresh: list[Any],
    right: list[tuple[float, ...]],
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    # A cache too small for all: answers are made of cached rows and others.
    flags = ("--cache_rows=300", *PATIENT)
    strict = start_server("m", tmp_path / "models" / "m", *flags)
    lenient = start_server("m", tmp_path / "models" / "m", *flags, "--on_store_failure=default")
    strict.wait_ready()
    lenient.wait_ready()
    every = [*requests, *fresh]
    with SteadyLoad(strict, every) as failing, SteadyLoad(lenient, every) as guessing:
        for load in (failing, guessing):
            load.wait_until(lambda load=load: len(load.answers()) > 100)
        flushed = time.monotonic()
        redis.call("FLUSHALL")
        failing.wait_until(lambda: len(failing.failures(flushed)) > 100)
        guessing.wait_until(lambda: len(wrong(guessing.answers(flushed), right)) > 100)
    assert wrong(failing.answers(), right) == []
    assert [a for a in failing.failures() if a.began + a.seconds < flushed] == []
    assert all("lost" in failure.text for failure in failing.failures())
    assert guessing.failures() == []
    counted = [answer for answer in guessing.answers() if answer.default_rows is not None]
    assert all(int(answer.default_rows or 0) > 0 for answer in counted)
    assert set(wrong(guessing.answers(), right)) <= set(counted)
