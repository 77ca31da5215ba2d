"""A checkpoint that several ranks write: what is left when starting it fails."""

from __future__ import annotations

import threading

import pytest

from hotrow.errors import HotrowError, ResourceExhaustedError
from hotrow.ops.ranks import thread_ranks
from hotrow.trainer.checkpoint import CheckpointDirectory, Position, shared_write
from hotrow.trainer.checkpoint.shared_write import SharedWrite


class Snapshot:
    """Takes the place of a `TrainingSnapshot`; knows whether it was closed."""

    position, kind, bytes_needed = Position(3, 0, 3), "full", 10

    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


def started(path, takes):
    """Starts a checkpoint on thread ranks; returns what each raised."""
    raised = [None] * len(takes)

    def run(rank):
        try:
            with rank:
                SharedWrite(
                    CheckpointDirectory(path, 1), takes[rank.rank], 3, [], False, False, rank
                )
        except HotrowError as err:
            raised[rank.rank] = err

    threads = [threading.Thread(target=run, args=(r,)) for r in thread_ranks(len(takes), 30.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_a_start_that_fails_after_the_directory_is_made_leaves_no_checkpoint(tmp_path, monkeypatch):
    def fail(ranks, what, value):
        raise HotrowError("rank 1: gone")

    monkeypatch.setattr(shared_write, "of_first", fail)
    snapshots = [Snapshot(), Snapshot()]
    path = tmp_path / "checkpoints"
    raised = started(path, [lambda: snapshots[0], lambda: snapshots[1]])
    assert [str(err) for err in raised] == ["rank 1: gone"] * 2
    assert list(path.iterdir()) == []
    assert all(snapshot.closed for snapshot in snapshots)


def test_a_snapshot_is_closed_when_that_of_another_rank_fails(tmp_path):
    def fail():
        raise MemoryError("no more")

    snapshot = Snapshot()
    raised = started(tmp_path, [lambda: snapshot, fail])
    assert all(isinstance(err, ResourceExhaustedError) and err.on_all_ranks for err in raised)
    assert snapshot.closed


@pytest.mark.parametrize("below", ["file", "file/further"])
def test_a_directory_that_cannot_be_made_is_an_error_that_all_ranks_raise(tmp_path, below):
    (tmp_path / "file").write_text("")
    raised = started(tmp_path / below, [Snapshot, Snapshot])
    assert all(err.on_all_ranks and str(tmp_path / below) in str(err) for err in raised)
