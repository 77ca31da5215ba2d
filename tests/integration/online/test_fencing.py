"""Two trainers of one model: the one that slept while the other took over ends by itself."""

from __future__ import annotations

import contextlib
import shutil
import signal

import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

from hotrow.errors import FailedPreconditionError
from hotrow.store import open_store
from hotrow.store.leases import exporter_of, lock_exports


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    yield work
    work.close()


def test_a_trainer_that_was_stopped_while_another_took_over_ends_with_an_error(work):
    events = work.folder / "events.jsonl"
    first = work.start(log="first")
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], lambda: work.log("first"), 120)
    refused = work.start("--set", "online.publish_seconds=0.3", run="other", log="refused")
    assert refused.wait(timeout=120) == 1
    assert "another process publishes model 'clicks'" in work.log("refused")

    first.send_signal(signal.SIGSTOP)
    shutil.copytree(work.folder / "run", work.folder / "run2")
    store = open_store(work.store)
    wait_until(lambda: exporter_of(store.records, "clicks") is None, seconds=60)
    store.close()
    second = work.start("--resume", run="run2", log="second")
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [20], lambda: work.log("second"), 120)

    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 1, work.log("first")
    assert "another process publishes model 'clicks'" in work.log("first")
    append_events(events, click_rows(640, seed=2))
    wait_until(lambda: work.published_steps()[-1:] == [30], lambda: work.log("second"), 120)
    work.stop(second, "second")
    assert work.events("run2") == 1920
    work.check_store("run2")


def test_a_trainer_ends_when_another_one_takes_the_lock_before_its_full_export(work):
    """The lock is free from when the trainer releases it until its export has loaded."""
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(640))
    work.await_line("a full export comes first")
    store = open_store(work.store)
    taken = []

    def take() -> bool:
        with contextlib.suppress(FailedPreconditionError):
            taken.append(lock_exports(store.records, "clicks", trainer="elsewhere"))
        return bool(taken)

    wait_until(take, work.log, 60)
    assert trainer.wait(timeout=120) == 1, work.log()
    assert "another process publishes model 'clicks'" in work.log()
    assert "the trainer of elsewhere" in work.log()
    taken[0].release()
    store.close()
