"""The end of a source: a trainer publishes its last state, or ends with an error that says why."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.online.online_run import Work, click_rows, write_recording

EVENTS = 640
SPOILT = str(Path(__file__).with_name("spoilt_trainer.py"))
HURRIED = (SPOILT, "hurries:0.5:0")
"""Far less than a full export takes."""


@pytest.fixture
def work(tmp_path, redis_server):
    """A trainer on a recording, which ends, with its rows in Redis."""
    write_recording(tmp_path / "recording.csv", click_rows(EVENTS))
    work = Work(tmp_path, redis_server.url, f"replay:{tmp_path}/recording.csv?speed=max")
    yield work
    work.close()


def test_a_full_export_may_take_longer_than_a_cut(work):
    # It begins with the first step, and is to last until 5 s after the last one.
    trainer = work.start(program=(SPOILT, "hurries:0.5:15"))
    assert trainer.wait(240) == 0, work.log()
    assert "is not published yet: a full export, or a cut, is on its way" in work.log()
    assert work.events() == EVENTS
    work.check_store()


@contextlib.contextmanager
def no_exports(work: Work) -> Iterator[None]:
    """A file is where the folder of versions should be."""
    models = work.folder / "models"
    models.mkdir(exist_ok=True)
    (models / "clicks").touch()
    yield
    (models / "clicks").unlink()


@pytest.mark.parametrize("flags", [(), pytest.param(("--workers", "2"), marks=pytest.mark.slow)])
def test_what_keeps_it_from_being_published_is_an_error(flags, work):
    trainer = work.start(*flags, program=HURRIED)
    with no_exports(work):
        assert trainer.wait(240) == 1, work.log()
    last = work.log().splitlines()[-1]
    assert "Error: step 10 is not published: " in last
    assert "the full export of step " in last
    assert "File exists" in last
    assert "--resume publishes it" in last
    assert work.events() == EVENTS
    work.train("--resume", *flags)
    work.check_store()


def test_a_signal_ends_the_wait(work):
    trainer = work.start()
    with no_exports(work):
        work.await_line("step 10 is not published yet: ")
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(120) == 128 + signal.SIGTERM
    assert "step 10 is not published: " in work.log()
    assert "stopped at step 10, checkpoint written" in work.log().splitlines()[-1]
