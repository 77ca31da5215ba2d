"""Rows that expire at the trainer leave the store with the next cut."""

from __future__ import annotations

import numpy as np
import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

from hotrow.trainer.online.publishing.journal import Journal


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    yield work
    work.close()


def test_rows_that_expired_are_gone_from_the_store(work):
    events = work.folder / "events.jsonl"
    expiry = ", expiry: {after_steps: 10, sweep_steps: 1}}}"
    work.replace("learning_rate: 0.1}}", "learning_rate: 0.1" + expiry)
    trainer = work.start("--set", "checkpoint.every_steps=1000")
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    append_events(events, click_rows(64, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [11], work.log, 120)
    for seed in range(2, 32):  # the same few users and items
        append_events(events, click_rows(64, seed=seed % 2))
    wait_until(lambda: work.published_steps()[-1:] == [41], work.log, 120)
    published = Journal(work.folder / "run").keys_since(0)
    work.stop(trainer)
    tables = work.tables()
    for name, keys in published.items():
        assert len(np.setdiff1d(keys, tables[name]["keys"])) > 10, name
    work.check_store(gone=published)
