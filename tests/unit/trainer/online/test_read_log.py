"""A read log knows from where rows that were not trained are read again."""

from __future__ import annotations

from hotrow.trainer.online.read_log import ReadLog


def test_it_begins_at_the_oldest_row_that_was_not_trained() -> None:
    log = ReadLog()
    assert log.position() is None
    first = log.begin({"a": 0}, None, {"a": 3}, 2)
    second = log.begin({"a": 3}, 5.0, {"a": 4}, 1)
    log.begin({"a": 7}, 6.0, {"a": 2}, 0)  # labels only
    assert log.position() == {
        "source": {"a": 0},
        "newest": None,
        "reads": [{"a": 9}],
        "taken": 0,
    }
    log.leave(second)
    log.leave(first)
    before = log.position()
    assert before == {"source": {"a": 0}, "newest": None, "reads": [{"a": 9}], "taken": 2}
    log.leave(first)
    assert log.position() is None
    third = log.begin({"a": 9}, 7.0, {"a": 1}, 1)
    assert log.position() == {
        "source": {"a": 9},
        "newest": 7.0,
        "reads": [{"a": 1}],
        "taken": 0,
    }
    log.leave(third)
    assert log.position() is None
    assert before["reads"] == [{"a": 9}]  # positions do not change


def test_reads_of_several_partitions_stay_apart() -> None:
    log = ReadLog()
    first = log.begin({}, None, {"a": 2}, 1)
    log.begin({"a": 2}, 1.0, {"a": 1, "b": 1}, 1)
    log.begin({"a": 3, "b": 1}, 2.0, {"a": 1}, 1)
    log.begin({"a": 4, "b": 1}, 3.0, {"a": 5}, 1)
    log.begin({"a": 9, "b": 1}, 4.0, {"b": 5}, 1)
    reads = [{"a": 2}, {"a": 1, "b": 1}, {"a": 6}, {"b": 5}]
    assert (log.position() or {})["reads"] == reads
    log.leave(first)
    assert log.position() == {
        "source": {"a": 2},
        "newest": 1.0,
        "reads": reads[1:],
        "taken": 0,
    }
