"""Reading ahead keeps the order, the errors and no thread."""

from __future__ import annotations

import contextlib
import threading

import pytest

from hotrow.trainer.read_ahead import read_ahead


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "read-ahead"]


@pytest.mark.parametrize("count", [0, 1, 50])
def test_items_come_in_order_and_the_thread_ends(count):
    assert list(read_ahead(lambda: iter(range(count)), depth=2)) == list(range(count))
    assert reading_threads() == []


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("broken")

    seen = []
    with pytest.raises(ValueError, match="broken"):
        seen.extend(read_ahead(items))
    assert reading_threads() == []


def test_an_error_in_making_the_iterator_arrives():
    def broken():
        raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        list(read_ahead(broken))


def test_leaving_early_ends_the_thread_even_when_the_queue_is_full():
    def endless():
        number = 0
        while True:
            yield number
            number += 1

    with contextlib.closing(read_ahead(endless, depth=1)) as items:
        assert next(items) == 0
    assert reading_threads() == []


def test_no_more_than_the_depth_waits():
    made = []
    third_made = threading.Event()

    def items():
        for number in range(10):
            made.append(number)
            if number == 3:
                third_made.set()
            yield number

    with contextlib.closing(read_ahead(items, depth=2)) as ahead:
        next(ahead)
        third_made.wait(10)
        # one used, two waiting, one in the hand of the thread
        assert made == [0, 1, 2, 3]
