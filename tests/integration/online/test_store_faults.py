"""Training goes on while the store is away, slow or full; afterwards the store has all rows."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from integration.online.online_run import Work, append_events, click_rows
from slow_proxy import SlowProxy
from waiting import wait_until

from hotrow.trainer.trained_run import load_run


@pytest.fixture
def make_work(tmp_path):
    """Makes a trainer whose rows are in a store, given its URL."""
    made = []

    def make(url: str) -> Work:
        (tmp_path / "events.jsonl").touch()
        made.append(Work(tmp_path, url, f"file:{tmp_path}/events.jsonl"))
        made[-1].configure('  admin: "127.0.0.1:0"\n')
        return made[-1]

    yield make
    for work in made:
        work.close()


def send(work: Work, number: int) -> None:
    """Sends events with keys of their own, so that no later cut hides that one was lost."""
    rows = click_rows(640, seed=number)
    own = [{**r, "user": f"{r['user']}-{number}", "item": f"{r['item']}-{number}"} for r in rows]
    append_events(work.folder / "events.jsonl", own)


def started(work: Work) -> Any:
    trainer = work.start()
    send(work, 0)
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 180)
    # Then the first to meet the fault is the next cut, which is given up.
    wait_until(lambda: work.all_folded(), work.log, 60)
    return trainer


def trains_without_publishing(work: Work) -> None:
    send(work, 1)
    work.await_trained(1280)
    send(work, 2)
    work.await_trained(1920)
    assert work.published_steps()[-1] < 30


def ends_with_all_rows(work: Work, trainer: Any) -> None:
    wait_until(lambda: work.published_steps()[-1:] == [30], work.log, 120)
    work.stop(trainer)
    assert work.events() == 1920
    work.check_store()
    assert work.log().count("a full export comes first") == 1


def test_a_store_that_hangs(make_work, redis_servers):
    redis = redis_servers.standalone()
    work = make_work(redis.url)
    trainer = started(work)
    redis.process.send_signal(signal.SIGSTOP)
    trains_without_publishing(work)
    wait_until(lambda: "publishing failed" in work.log(), work.log, 60)
    redis.process.send_signal(signal.SIGCONT)
    ends_with_all_rows(work, trainer)


@pytest.mark.slow
def test_a_store_whose_memory_is_full(make_work, redis_servers):
    redis = redis_servers.standalone()
    work = make_work(redis.url)
    trainer = started(work)
    redis.call("CONFIG", "SET", "maxmemory", "1")
    trains_without_publishing(work)
    wait_until(lambda: "publishing failed" in work.log(), work.log, 60)
    assert "maxmemory" in work.log()
    redis.call("CONFIG", "SET", "maxmemory", "0")
    ends_with_all_rows(work, trainer)


@pytest.mark.slow
def test_a_store_that_may_drop_rows_is_refused(make_work, redis_servers):
    redis = redis_servers.standalone(maxmemory="100mb", policy="allkeys-lru")
    work = make_work(redis.url)
    trainer = work.start()
    send(work, 0)
    work.await_trained(640)
    wait_until(lambda: "maxmemory-policy allkeys-lru" in work.log(), work.log, 60)
    assert work.published_steps() == []
    redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    send(work, 1)
    send(work, 2)
    ends_with_all_rows(work, trainer)


@pytest.mark.slow
def test_a_store_that_answers_half_a_second_late(make_work, redis_servers):
    redis = redis_servers.standalone()
    proxy = SlowProxy(redis.port)
    try:
        work = make_work(f"redis://127.0.0.1:{proxy.port}")
        trainer = started(work)
        proxy.delay = 0.5
        send(work, 1)
        send(work, 2)
        work.await_trained(1920)
        wait_until(lambda: work.published_steps()[-1:] == [30], work.log, 120)
        proxy.delay = 0.0
        work.stop(trainer)
        assert work.events() == 1920
        work.check_store()
    finally:
        proxy.close()


@pytest.mark.slow
def test_a_cluster_whose_primary_dies(make_work, redis_servers):
    """Twice: the second node that dies may be the one that holds the records."""
    cluster = redis_servers.cluster(replicas=True)
    work = make_work(cluster.url)
    trainer = started(work)
    dead = cluster.kill_primary(0)
    send(work, 1)
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    dead.restart()
    cluster.wait_healthy(60)
    cluster.kill_primary(1)
    send(work, 2)
    ends_with_all_rows(work, trainer)


def test_a_checkpoint_during_an_outage_remembers_what_was_published(make_work, redis_servers):
    """Otherwise a trainer that is killed then needs a full export."""
    redis = redis_servers.standalone()
    work = make_work(redis.url)
    trainer = started(work)
    send(work, 1)
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    work.stop(trainer)
    before = load_run(work.folder / "run").position.online["published"]
    assert before is not None
    redis.process.send_signal(signal.SIGSTOP)
    trainer = work.start("--resume")
    send(work, 2)
    wait_until(lambda: work.has_checkpoint(30), work.log, 120)
    trainer.kill()
    trainer.wait()
    redis.process.send_signal(signal.SIGCONT)
    assert load_run(work.folder / "run").position.online["published"] == before
