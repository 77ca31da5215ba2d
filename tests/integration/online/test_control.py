"""Operators pause, resume and roll back a trainer; gates stop what it publishes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    work.configure('  admin: "127.0.0.1:0"\n')
    yield work
    work.close()


def platform(work, *arguments, code=0):
    """Runs a command and returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", *arguments],
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def status(work):
    """Returns the trainer's part of `platform status --json`."""
    wait_until(lambda: (work.folder / "run" / "admin.json").exists(), work.log, 120)
    text = subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", "status", "run", "--json"],
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    return json.loads(text)["trainer"]


def started(work, rows=640):
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(rows))
    wait_until(lambda: work.published_steps()[-1:] == [rows // 64], work.log, 120)
    return trainer


def test_a_paused_trainer_reads_nothing_until_it_is_resumed(work):
    trainer = started(work)
    platform(work, "pause", "run", "--reason", "new features")
    paused = status(work)
    assert (paused["state"], paused["reason"]) == ("paused", "new features")
    append_events(work.folder / "events.jsonl", click_rows(640, seed=1))
    assert status(work)["step"] == paused["step"] == 10
    platform(work, "resume", "run")
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    assert status(work)["state"] == "training"
    work.stop(trainer)
    work.check_store()


def test_a_rollback_closes_the_gate_and_a_resume_publishes_all_again(work):
    trainer = started(work)
    before = work.last_cut()
    append_events(work.folder / "events.jsonl", click_rows(64, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [11], work.log, 120)
    wait_until(lambda: status(work)["publishing"]["unfolded_cuts"] == 0, work.log, 60)
    platform(work, "rollback", "models", "--name", "clicks", "--to", f"{before:016x}")
    closed = status(work)
    assert closed["state"] == "gate_closed"
    assert f"rolled back to {before:016x}" in closed["reason"]
    assert work.published_steps()[-1] == 10
    append_events(work.folder / "events.jsonl", click_rows(64, seed=2))
    wait_until(lambda: status(work)["step"] == 12, work.log, 60)
    assert work.published_steps()[-1] == 10  # it trains, and publishes nothing
    platform(work, "resume", "run")
    wait_until(lambda: work.published_steps()[-1:] == [12], work.log, 60)
    work.stop(trainer)
    work.check_store()


def test_cuts_are_folded_after_a_rollback_that_is_refused(work):
    trainer = started(work)
    unknown = f"{work.last_cut() + 1:016x}"
    refusal = platform(work, "rollback", "models", "--name", "clicks", "--to", unknown, code=1)
    assert unknown in refusal
    append_events(work.folder / "events.jsonl", click_rows(64, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [11], work.log, 120)
    wait_until(work.all_folded, work.log, 60)
    work.stop(trainer)
    work.check_store()


def test_flipped_labels_close_the_gate_and_servers_keep_the_last_good_cut(work):
    rows = [
        {**row, "item": f"i{n % 8}", "clicked": n % 2} for n, row in enumerate(click_rows(2000))
    ]
    canary = work.folder / "canary.csv"
    lines = [f"{r['clicked']},{r['price']},{r['user']},{r['item']}" for r in rows[:500]]
    canary.write_text("\n".join(["clicked,price,user,item", *lines]) + "\n")
    work.configure(f"  canary: {canary}\n  canary_auc_drop: 0.03\n")
    work.replace("optimizer: sgd, learning_rate: 0.1", "optimizer: adam, learning_rate: 0.02")
    work.replace("name: sgd, learning_rate: 0.05", "name: adam, learning_rate: 0.01")
    trainer = work.start()
    events = work.folder / "events.jsonl"
    for _ in range(6):
        append_events(events, rows)
    wait_until(lambda: work.published_steps()[-1:] == [12000 // 64 + 1], work.log, 120)
    good = status(work)
    assert good["publishing"]["canary"]["auc"] > 0.9
    assert good["state"] == "training"
    flipped = [{**row, "clicked": 1 - row["clicked"]} for row in rows]
    for _ in range(6):
        append_events(events, flipped)
    wait_until(lambda: status(work)["state"] == "gate_closed", work.log, 120)
    closed = status(work)
    assert "canary: the AUC is" in closed["reason"]
    last = work.last_cut()
    wait_until(lambda: status(work)["stream"]["events"] == 24000, work.log, 120)
    assert work.last_cut() == last
    platform(work, "resume", "run", "--force")
    wait_until(lambda: work.last_cut() > last, work.log, 60)
    work.stop(trainer)
    work.check_store()


def test_a_second_trainer_of_the_model_is_refused(work):
    trainer = started(work)
    log = work.train(run="other", code=1)
    assert "another process publishes model 'clicks'" in log
    assert status(work)["state"] == "training"
    work.stop(trainer)
