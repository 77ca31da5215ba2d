"""Histograms as text: every character of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.cli.histogram import draw, norm_bars, octave_bars
from hotrow.table_statistics import Bin, TableStatistics


def text(*lines):
    return list(lines)


def test_bars_are_drawn_with_eighths_of_a_block():
    bars = [("0", 800), ("1", 450), ("2 .. 3", 0), ("4 .. 7", 1)]
    assert draw(bars, width=41, blocks=True) == text(
        "       0  ██████████████████  800   63.9%",
        "       1  ██████████▏         450   36.0%",
        "  2 .. 3                        0    0.0%",
        "  4 .. 7  ▏                     1    0.1%",
    )


def test_bars_are_drawn_in_ascii():
    bars = [("0", 12_345), ("1", 6_000), ("2 .. 3", 1)]
    assert draw(bars, width=40, blocks=False) == text(
        "       0  ##############  12,345   67.3%",
        "       1  #######          6,000   32.7%",
        "  2 .. 3  #                    1    0.0%",
    )


def test_a_narrow_terminal_does_not_cut_labels_and_numbers():
    assert draw([("1,024 .. 2,047", 10**9)], width=10, blocks=False) == text(
        "  1,024 .. 2,047  ########  1,000,000,000  100.0%"
    )


def test_a_wide_terminal_gets_no_longer_bars_than_can_be_read():
    (line,) = draw([("0", 1)], width=1000, blocks=True)
    assert line.count("█") == 50


def test_nothing_is_drawn_of_nothing():
    assert draw([], width=80, blocks=True) == []
    assert draw([("0", 0)], width=80, blocks=True) == ["  0" + " " * 54 + "0"]


@given(
    rows=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
    width=st.integers(40, 200),
    blocks=st.booleans(),
)
def test_lines_fit_the_terminal_and_show_every_row(rows, width, blocks):
    lines = draw([(str(i), n) for i, n in enumerate(rows)], width, blocks)
    assert max(map(len, lines)) <= width
    for line, n in zip(lines, rows, strict=True):
        assert any(c in line for c in "#▏▎▍▌▋▊▉█") == (n > 0)
        assert blocks or line.isascii()


def test_octaves_are_labelled_by_their_whole_numbers():
    bins = [Bin(0, 1, 0), Bin(1, 2, 7), Bin(2, 4, 0), Bin(512, 1024, 3), Bin(1024, 2048, 1)]
    assert octave_bars(bins) == [
        ("1", 7),
        ("2 .. 3", 0),
        ("512 .. 1,023", 3),
        ("1,024 .. 2,047", 1),
    ]


def bins_of(norms):
    statistics = TableStatistics(0)
    weights = np.asarray(norms, np.float32).reshape(-1, 1)
    zeros = np.zeros(len(weights), np.uint32)
    statistics.add(weights, zeros, zeros, np.ones(len(weights), np.bool_))
    return statistics.norms()


def test_norms_within_an_octave_are_drawn_in_eight_parts():
    assert norm_bars(bins_of([0.5, 0.5, 0.7, 0.99, 0.0])) == [
        ("0", 1),
        ("0.5 .. 0.545", 2),
        ("0.545 .. 0.595", 0),
        ("0.595 .. 0.648", 0),
        ("0.648 .. 0.707", 1),
        ("0.707 .. 0.771", 0),
        ("0.771 .. 0.841", 0),
        ("0.841 .. 0.917", 0),
        ("0.917 .. 1", 1),
    ]


def test_norms_far_apart_share_bars():
    bars = norm_bars(bins_of([2.0**-5, 1.0, 1.9]))
    assert bars == [
        ("0.0312 .. 0.0442", 1),
        ("0.0442 .. 0.0625", 0),
        *[(label, 0) for label, _ in bars[2:-2]],
        ("1 .. 1.41", 1),
        ("1.41 .. 2", 1),
    ]
    assert norm_bars(bins_of([2.0**-9, 1.0, 1.9, 0.5])) == [
        *[(f"{2.0**e:.3g} .. {2.0 ** (e + 1):.3g}", 1 if e == -9 else 0) for e in range(-9, -1)],
        ("0.5 .. 1", 1),
        ("1 .. 2", 2),
    ]


def test_a_few_rows_far_out_do_not_stretch_the_histogram():
    assert norm_bars(bins_of([1e-20, *[1.0] * 3000, 1e20, 1e30])) == [
        ("< 1", 1),
        ("1 .. 1.09", 3000),
        (">= 1.09", 2),
    ]


@pytest.mark.parametrize("norms", [[], [0.0, 0.0]], ids=["no rows", "zeros"])
def test_no_norms_above_zero_need_no_bars(norms):
    assert norm_bars(bins_of(norms)) == ([("0", 2)] if norms else [])


@given(st.lists(st.floats(2.0**-120, 2.0**120, width=32), max_size=60))
def test_every_norm_is_in_a_bar(norms):
    bars = norm_bars(bins_of(norms))
    assert sum(rows for _, rows in bars) == len(norms)
    assert len(bars) <= 19
    assert not any(math.isnan(rows) for _, rows in bars)
