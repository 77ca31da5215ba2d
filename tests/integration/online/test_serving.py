"""Servers answer by what the trainer has learned, while it learns and after it has ended."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from integration.online.online_run import Work, append_events, click_rows
from integration.serving.conftest import Server
from waiting import wait_until

from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.store.readers import readers
from hotrow.trainer.data import BatchStream
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import load_run


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    yield work
    work.close()


def columns(rows):
    return {
        "price": np.array([row["price"] for row in rows], np.float32),
        "user": np.array([row["user"].encode() for row in rows]),
        "item": np.array([row["item"].encode() for row in rows]),
    }


def served(server: Server, rows) -> np.ndarray:
    reply = server.predict(**columns(rows))
    return tf.make_ndarray(reply.outputs["scores"])


def offline(work: Work, rows) -> np.ndarray:
    """Returns the scores of the newest checkpoint, by the model that was trained."""
    path = work.folder / "canary.csv"
    lines = ["clicked,price,user,item"]
    lines += [f"{r['clicked']},{r['price']},{r['user']},{r['item']}" for r in rows]
    path.write_text("\n".join(lines) + "\n")
    run = load_run(work.folder / "run")
    (batch,) = BatchStream(path, run.config, batch_size=len(rows))
    logits = run.model(model_inputs(batch), training=False).numpy()
    return 1 / (1 + np.exp(-logits))


def shown_cut(work: Work) -> int:
    manifest = work.manifest()
    store = open_store(work.store)
    try:
        generation = Generations(store.records).get(manifest.generation)
        cuts = [reader.cut for reader in readers(store.records, generation.generation)]
        return min(cuts, default=0)
    finally:
        store.close()


def test_servers_follow_a_trainer_and_end_with_its_last_state(work, start_server):
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: (work.folder / "models" / "clicks" / "1").exists(), work.log, 120)
    server = start_server("clicks", work.folder / "models" / "clicks")
    server.wait_ready()
    probe = click_rows(32, seed=5)
    seen = set()
    for part in range(10):
        append_events(events, click_rows(128, seed=part))
        before = len(seen)

        def changed(before=before):
            seen.add(served(server, probe).tobytes())
            return len(seen) > before

        wait_until(changed, lambda: (work.log(), server.log), 60)
    work.stop(trainer)
    last = work.last_cut()
    wait_until(lambda: shown_cut(work) >= last, lambda: (shown_cut(work), last, server.log), 60)
    np.testing.assert_allclose(served(server, probe), offline(work, probe), atol=1e-6)
    work.check_store()


def test_a_key_that_is_asked_for_before_its_first_publish_gets_its_row(work, start_server):
    """A server remembers no longer than to the next cut that there is none."""
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    server = start_server("clicks", work.folder / "models" / "clicks")
    server.wait_ready()
    strangers = [
        {**row, "user": f"new-{row['user']}", "item": f"new-{row['item']}"}
        for row in click_rows(128, seed=3)
    ]
    before = served(server, strangers)
    np.testing.assert_array_equal(served(server, strangers), before)
    append_events(events, strangers)
    wait_until(lambda: work.published_steps()[-1:] == [12], work.log, 120)
    work.stop(trainer)
    last = work.last_cut()
    wait_until(lambda: shown_cut(work) >= last, lambda: (shown_cut(work), last, server.log), 60)
    after = served(server, strangers)
    np.testing.assert_allclose(after, offline(work, strangers), atol=1e-6)
    assert not np.array_equal(before, after)
