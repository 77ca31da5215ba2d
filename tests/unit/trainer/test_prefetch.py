"""Windows of batches are handed over in their time, and batches come out as they went in."""

from __future__ import annotations

import pytest

from hotrow.trainer.prefetch import prefetch


def trace(count, window):
    """Returns what happens in which order: windows handed over, items yielded, items read."""
    happened = []

    def items():
        for number in range(count):
            happened.append(("read", number))
            yield number

    for number in prefetch(items(), window, lambda w: happened.append(("window", tuple(w)))):
        happened.append(("item", number))
    return happened


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6, 7, 8, 9, 20])
@pytest.mark.parametrize("window", [0, 1, 3, 8])
def test_every_item_comes_once_and_in_order(count, window):
    happened = trace(count, window)
    assert [number for what, number in happened if what == "item"] == list(range(count))
    windows = [number for what, number in happened if what == "window"]
    assert [number for w in windows for number in w] == (list(range(count)) if window else [])
    assert all(len(w) == window for w in windows[:-1])


@pytest.mark.parametrize("count", [1, 3, 4, 6, 8, 9, 10, 20, 21])
@pytest.mark.parametrize("window", [1, 3, 4])
def test_a_window_is_handed_over_when_the_one_before_it_begins(count, window):
    happened = [entry for entry in trace(count, window) if entry[0] != "read"]
    for at, (what, keys) in enumerate(happened):
        if what == "window":
            number = keys[0] // window
            items = [n for kind, n in happened[:at] if kind == "item"]
            # Windows 0 and 1 come first; window w follows the last item of window w - 2.
            assert items == list(range(max(number - 1, 0) * window))


@pytest.mark.parametrize("window", [1, 3, 8])
def test_no_more_than_two_windows_are_read_ahead(window):
    done, read, most = 0, 0, 0
    for what, _ in trace(50, window):
        done += what == "item"
        read += what == "read"
        most = max(most, read - done)
    assert most == 2 * window


def test_without_a_window_an_item_is_read_when_it_is_asked_for():
    assert trace(2, 0) == [("read", 0), ("item", 0), ("read", 1), ("item", 1)]


@pytest.mark.parametrize("window", [0, 1, 2, 5])
def test_an_error_comes_after_the_items_before_it(window):
    def items():
        yield from range(7)
        raise ValueError("broken line")

    seen, windows = [], []
    with pytest.raises(ValueError, match="broken line"):
        seen.extend(prefetch(items(), window, windows.append))
    assert seen == list(range(7))
    assert [number for w in windows for number in w] == (seen if window else [])
