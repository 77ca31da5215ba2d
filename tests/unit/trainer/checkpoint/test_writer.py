"""Checkpoints are written beside the training, one at a time, and a failing one harms nothing."""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading

import numpy as np
import pytest
from unit.trainer.checkpoint.trained import (
    Trained,
    assert_equal_states,
    config_of,
    silent,
    truncate,
)

from hotrow.errors import HotrowError, ResourceExhaustedError
from hotrow.trainer.checkpoint import Position, snapshot
from hotrow.trainer.checkpoint.snapshot import TrainingSnapshot
from hotrow.trainer.checkpoint.table_files import RowFiles


def beside(**checkpoint):
    return config_of(checkpoint={"asynchronous": True, **checkpoint})


@pytest.fixture
def held(monkeypatch):
    """Holds the writing of rows back until it is let go: a disk as slow as a test needs."""
    begun, go = threading.Event(), threading.Event()
    write_some = RowFiles.write_some

    def write_later(files):
        begun.set()
        assert go.wait(60)
        return write_some(files)

    monkeypatch.setattr(RowFiles, "write_some", write_later)
    yield begun, go
    go.set()


@pytest.mark.parametrize("full_every", [1, 4])
def test_what_is_written_while_training_goes_on_is_the_state_of_the_snapshots_step(
    tmp_path, held, full_every
):
    begun, go = held
    trained = Trained(tmp_path, beside(full_every=full_every))
    go.set()
    trained.train(0, 2)
    trained.save(2)  # so that the next is an increment, where those are wanted
    go.clear()
    begun.clear()
    trained.train(2, 4)
    at_four = trained.state()
    trained.writer.begin(Position(4), trained.metrics.state)
    assert begun.wait(60)
    trained.train(4, 30, keys=3000)  # updates old rows, creates new ones
    assert trained.directory.steps() == [2]
    assert trained.state()[1] != at_four[1]
    go.set()
    trained.writer.close()
    after = trained.state()
    (first, second) = trained.writer.outcomes()
    assert (first.position.step, second.position.step) == (2, 4)
    assert second.kind == ("full" if full_every == 1 else "increment")
    assert second.failure is None
    assert second.stall_seconds < second.seconds
    again = Trained(tmp_path, trained.config)
    assert again.restore() == Position(4)
    assert_equal_states(again.state(), at_four)
    again.train(4, 30, keys=3000)
    assert_equal_states(again.state(), after)


def test_rows_that_change_while_an_increment_is_written_are_in_the_next(tmp_path, held):
    begun, go = held
    trained = Trained(tmp_path, beside(full_every=9, keep=9))
    trained.train(0, 2)
    for step in (3, 4, 5):
        go.clear()
        begun.clear()
        trained.train(step - 1, step)
        trained.writer.begin(Position(step), trained.metrics.state)
        assert begun.wait(60)
        trained.train(10 * step, 10 * step + 3, keys=300)
        go.set()
        trained.writer.close()
    trained.save(6)
    assert [outcome.kind for outcome in trained.writer.outcomes()] == ["full", *3 * ["increment"]]
    again = Trained(tmp_path, trained.config)
    assert again.restore() == Position(6)
    again.assert_equals(trained)


def test_a_checkpoint_that_falls_due_while_another_is_written_is_skipped_with_one_line(
    tmp_path, held
):
    begun, go = held
    lines = []
    trained = Trained(tmp_path, beside(), lines.append)
    trained.train(0, 1)
    trained.writer.begin(Position(1), trained.metrics.state)
    assert begun.wait(60)
    for step in (2, 3):
        trained.train(step - 1, step)
        trained.writer.begin(Position(step), trained.metrics.state)
    assert len(lines) == 1
    assert "checkpoint of step 2 skipped: that of step 1 is still being written" in lines[0]
    go.set()
    trained.writer.finish(Position(3), trained.metrics.state)  # the last one is not skipped
    assert trained.directory.steps() == [1, 3]


def test_the_last_checkpoint_waits_for_the_one_of_the_same_step(tmp_path, held):
    begun, go = held
    trained = Trained(tmp_path, beside())
    trained.train(0, 1)
    trained.writer.begin(Position(1), trained.metrics.state)
    assert begun.wait(60)
    go.set()
    trained.writer.finish(Position(1), trained.metrics.state)
    assert [outcome.position.step for outcome in trained.writer.outcomes()] == [1]


def test_a_checkpoint_that_is_abandoned_leaves_nothing(tmp_path, held):
    begun, go = held
    trained = Trained(tmp_path, beside())
    trained.train(0, 1)
    trained.writer.begin(Position(1), trained.metrics.state)
    assert begun.wait(60)
    threading.Timer(0.05, go.set).start()
    trained.writer.close(abandon=True)
    assert trained.writer.outcomes() == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_due_every_so_many_steps_or_seconds(tmp_path):
    trained = Trained(tmp_path, config_of(checkpoint={"every_steps": 5}))
    assert [step for step in range(1, 12) if trained.writer.due(step)] == [5, 10]
    timed = config_of(checkpoint={"every_steps": 10**6, "every_seconds": 1e-9})
    assert Trained(tmp_path, timed).writer.due(1)
    rare = config_of(checkpoint={"every_steps": 10**6, "every_seconds": 1e9})
    assert not Trained(tmp_path, rare).writer.due(1)


def test_after_a_restoration_the_first_checkpoint_is_full(tmp_path):
    config = config_of(checkpoint={"full_every": 5})
    trained = Trained(tmp_path, config)
    for step in (1, 2):
        trained.train(step, step + 1)
        trained.save(step)
    again = Trained(tmp_path, config)
    again.restore()
    again.save(2)  # nothing to do
    assert again.writer.outcomes() == []
    for step in (3, 4):
        again.train(step, step + 1)
        again.save(step)
    assert [outcome.kind for outcome in again.writer.outcomes()] == ["full", "increment"]


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_no_increment_is_built_on_what_is_not_there(tmp_path, loss):
    trained = Trained(tmp_path, config_of(checkpoint={"full_every": 5}))
    trained.train(1, 2)
    base = trained.save(1)
    if loss == "gone":
        shutil.rmtree(base)
    else:
        truncate(base / "manifest.json", 9)
    trained.train(2, 3)
    trained.save(2)
    assert [outcome.kind for outcome in trained.writer.outcomes()] == ["full", "full"]


@pytest.fixture
def file_limit():
    """Sets how long a file may become; a write beyond it fails as on a full disk (EFBIG)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("full_every", [1, 3])
def test_a_disk_that_fills_up_costs_one_warning_and_nothing_else(tmp_path, file_limit, full_every):
    lines = []
    config = config_of(checkpoint={"full_every": full_every})
    trained = Trained(tmp_path, config, lines.append)
    trained.train(0, 1)
    trained.save(1)
    trained.train(1, 2)
    file_limit(100)
    trained.writer.begin(Position(2), trained.metrics.state)
    file_limit(resource.RLIM_INFINITY)
    (line,) = lines
    assert "checkpoint of step 2 is not written: cannot write" in line
    assert "File too large" in line
    needed = int(line.split(" bytes needed")[0].split()[-1].replace(",", ""))
    free = int(line.split(" free at")[0].split()[-1].replace(",", ""))
    assert 1000 < needed < free
    assert "the checkpoint of step 1 stays, training goes on" in line
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert isinstance(trained.writer.outcomes()[1].failure, ResourceExhaustedError)
    trained.train(2, 3)
    trained.save(3)  # what the failed one was to hold is in this one
    again = Trained(tmp_path, config)
    assert again.restore() == Position(3)
    again.assert_equals(trained)


def test_a_checkpoint_that_does_not_fit_is_refused_before_the_disk_is_full(tmp_path, monkeypatch):
    lines = []
    trained = Trained(tmp_path, config_of(), lines.append)
    trained.train(0, 1)
    needed = 10**18
    init = TrainingSnapshot.__init__

    def huge(self, *arguments, **named):
        init(self, *arguments, **named)
        self.bytes_needed = needed

    monkeypatch.setattr(TrainingSnapshot, "__init__", huge)
    trained.writer.begin(Position(1), trained.metrics.state)
    assert "not written: 1,000,000,000,000,000,000 bytes needed, " in lines[0]
    assert "there is no other checkpoint, training goes on" in lines[0]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ResourceExhaustedError, match=r"checkpoint of step 1 is not written: 1,000"):
        trained.writer.finish(Position(1), trained.metrics.state)


def test_the_estimate_of_the_size_is_a_close_upper_bound(tmp_path):
    trained = Trained(tmp_path, config_of(dim=64))
    trained.train(0, 40, keys=10**6)
    taken = TrainingSnapshot(
        trained.model, trained.optimizer, Position(9), trained.metrics.state(), "full"
    )
    taken.close()
    path = trained.save(9)
    written = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert written <= taken.bytes_needed <= 1.2 * written


def test_the_last_checkpoint_must_succeed(tmp_path, file_limit):
    trained = Trained(tmp_path)
    trained.train(0, 1)
    trained.save(1)
    trained.train(1, 2)
    file_limit(100)
    with pytest.raises(
        HotrowError, match=r"step 2 is not written: .*; the checkpoint of step 1 stays"
    ) as refused:
        trained.save(2)
    assert refused.value.exit_code == 1
    file_limit(resource.RLIM_INFINITY)
    trained.save(2)
    assert trained.directory.steps() == [1, 2]


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path):
    lines = []
    (tmp_path / "file").write_text("")
    trained = Trained(tmp_path / "file" / "checkpoints", config_of(), lines.append)
    trained.train(0, 1)
    trained.writer.begin(Position(1), trained.metrics.state)
    assert "Not a directory" in lines[0]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, where this user may make one."""
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("this user may not mount a file system")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_file_system_is_refused_early_and_reported_late(small_disk, monkeypatch):
    lines = []
    trained = Trained(small_disk / "c", config_of(dim=16), lines.append)
    trained.train(0, 1)
    trained.save(1)
    (small_disk / "other").write_bytes(bytes(700 << 10))
    trained.train(1, 60, keys=10**6)
    trained.writer.begin(Position(60), trained.metrics.state)
    assert "bytes needed" in lines[0]
    assert "No space left" not in lines[0]
    init = TrainingSnapshot.__init__

    def modest(self, *arguments, **named):
        init(self, *arguments, **named)
        self.bytes_needed = 1

    with monkeypatch.context() as patch:
        patch.setattr(TrainingSnapshot, "__init__", modest)
        trained.writer.begin(Position(60), trained.metrics.state)
    assert "No space left on device" in lines[1]
    assert [path.name for path in (small_disk / "c").iterdir()] == ["step-00000001"]
    (small_disk / "other").unlink()
    trained.save(60)
    assert len(lines) == 2
    again = Trained(small_disk / "c", config_of(dim=16), silent)
    assert again.restore() == Position(60)
    for one, other in zip(again.state()[0], trained.state()[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_table_whose_copies_take_the_memory_is_written_before_the_one_whose_turn_it_is(
    tmp_path, monkeypatch
):
    """Copies of all tables together may take 64 MiB here; C2 has rows of 16 KiB."""
    trained = Trained(tmp_path, config_of(dim=2048, checkpoint={"asynchronous": True}))
    second = trained.model.tables()["C2"]
    keys = np.arange(6000)
    second.lookup(keys, insert=True)
    trained.train(0, 1)
    expected = trained.state()
    order, opened, go = [], [], threading.Event()
    write_some, open_snapshots = RowFiles.write_some, snapshot.open_snapshots

    def opening(tables, since):
        opened.extend(open_snapshots(tables, since))
        return opened

    def write_later(files):
        order.append(files.stem)
        assert go.wait(60)
        return write_some(files)

    monkeypatch.setattr(snapshot, "open_snapshots", opening)
    monkeypatch.setattr(RowFiles, "write_some", write_later)
    trained.writer.begin(Position(1), trained.metrics.state)
    # The copies of C2 use the budget up; the step then waits for the writer, which is at C1.
    training = threading.Thread(
        target=lambda: [
            second.update(part, np.ones((len(part), 2048), np.float32))
            for part in np.split(keys, 12)
        ]
    )
    training.start()
    while sum(one.copied_bytes for one in opened) <= 64 << 20:
        training.join(0.01)
    go.set()
    training.join()
    trained.writer.close()
    [outcome] = trained.writer.outcomes()
    assert outcome.failure is None
    assert outcome.stall_seconds > 0
    written = [stem for stem in order if stem in ("C1", "C2")]
    assert written[:2] == ["C1", "C2"]
    assert written[-1] == "C1"  # its turn comes again
    again = Trained(tmp_path, trained.config)
    again.restore()
    assert_equal_states(again.state(), expected)
