"""Two trainers of one model: the one that slept while the other took over ends by itself."""

from __future__ import annotations

import shutil
import signal
import time

import pytest
from integration.online.online_run import Work, append_events, click_rows
from integration.store.lenders import killed_holder
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


def test_the_lock_is_never_free_during_a_full_export(work):
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(640))
    work.await_line("a full export comes first")
    store = open_store(work.store)
    holders, refusals = set(), set()
    while not work.published_steps():
        assert trainer.poll() is None, work.log()
        with pytest.raises(FailedPreconditionError) as refused:
            lock_exports(store.records, "clicks", trainer="elsewhere").release()
        holders.add(exporter_of(store.records, "clicks").holder)
        refusals.add(str(refused.value).partition("; ")[2].partition(":")[0])
        time.sleep(0.002)
    store.close()
    assert len(holders) == 2, "the trainer, and its export"
    whose = "the trainer of run"
    assert refusals == {
        f"it is {whose}, which publishes by itself and has no admin service (online.admin)",
        f"it is a full export of {whose}",
    }
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    work.stop(trainer)
    work.check_store()


def test_a_trainer_that_lost_the_lock_before_its_full_export_ends(work):
    """As after it slept: the store ended its lock, and another trainer took it."""
    trainer = work.start()
    work.await_line("a full export comes first")
    store = open_store(work.store)
    name = "export/clicks"
    assert store.records.swap(name, store.records.get(name), None)
    taken = lock_exports(store.records, "clicks", trainer="elsewhere")
    append_events(work.folder / "events.jsonl", click_rows(640))
    assert trainer.wait(timeout=120) == 1, work.log()
    assert "another process publishes model 'clicks'" in work.log()
    assert "the trainer of elsewhere" in work.log()
    taken.release()
    store.close()


def test_a_trainer_waits_for_a_full_export_of_its_run(work):
    store = open_store(work.store)
    lender = killed_holder(work.store, "clicks", "run")
    lent = lock_exports(store.records, "clicks", lender=lender)
    append_events(work.folder / "events.jsonl", click_rows(640))
    trainer = work.start()
    work.await_line("a full export of run is on its way, and comes first")
    lent.release()
    store.close()
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    assert work.log().count("is on its way, and comes first") == 1
    assert "publishing failed" not in work.log()
    work.stop(trainer)
    work.check_store()


def test_a_full_export_outlives_its_trainer_and_the_next_one_goes_on_from_it(work):
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(640))
    work.await_line("a full export comes first")
    store = open_store(work.store)

    def is_lent() -> bool:
        found = exporter_of(store.records, "clicks")
        return found is not None and bool(found.lender)

    wait_until(is_lent, work.log, 60)
    trainer.kill()
    trainer.wait()
    store.close()
    second = work.start("--resume", log="second")
    wait_until(lambda: work.published_steps()[-1:] == [10], lambda: work.log("second"), 120)
    assert "servers have nothing to go on from" not in work.log("second")
    assert "publishing failed" not in work.log("second")
    work.stop(second, "second")
    work.check_store()
