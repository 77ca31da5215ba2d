"""Histograms as lines of text: one bar a line, drawn with block characters or in ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotrow.table_statistics import NORM_PARTS, Bin, norm_boundary

_BLOCKS = "▏▎▍▌▋▊▉█"  # one to eight eighths of a character
_ASCII = "#"
_WIDEST_BAR, _NARROWEST_BAR = 50, 8
_MOST_NORM_BARS = 16
_TAIL = 0.001

Bar = tuple[str, int]  # label and number of rows


def draw(bars: Sequence[Bar], width: int, blocks: bool) -> list[str]:
    """Returns one line a bar: label, bar, rows and their share of all rows.

    Bars are to scale, but each is visible: the shortest bar is one eighth of a character, or
    one `#`.

    Args:
        bars: their labels and rows.
        width: columns to fill at most; labels and numbers are never cut.
        blocks: draw with Unicode's block characters.
    """
    most = max((rows for _, rows in bars), default=0)
    total = sum(rows for _, rows in bars)
    label_width = max((len(label) for label, _ in bars), default=0)
    rows_width = max((len(f"{rows:,}") for _, rows in bars), default=0)
    bar_width = width - label_width - rows_width - 14
    bar_width = max(_NARROWEST_BAR, min(bar_width, _WIDEST_BAR))
    lines = []
    for label, rows in bars:
        bar = _bar(rows, most, bar_width, blocks)
        share = f"{rows / total:.1%}" if total else ""
        line = f"  {label:>{label_width}}  {bar:<{bar_width}}  {rows:>{rows_width},}  {share:>6}"
        lines.append(line.rstrip())
    return lines


def octave_bars(bins: Sequence[Bin]) -> list[Bar]:
    """Returns a bar for each bin of whole numbers, from the first to the last used."""
    bars = [(_whole_label(int(b.low), int(b.high) - 1), b.rows) for b in bins]
    while bars and bars[0][1] == 0:
        del bars[0]
    return bars


def norm_bars(bins: Sequence[Bin]) -> list[Bar]:
    """Returns at most 19 bars of equal ratio for bins of norms.

    Bins at an end with less than 0.1 % of the rows become one bar, `< low` or `>= high`.
    """
    zeros = [("0", b.rows) for b in bins if b.high == 0]
    rows_at = {_place(b): b.rows for b in bins if b.high > 0}
    if not rows_at:
        return zeros
    first, last = _without_tails(rows_at)
    step = 1
    while last // step - first // step >= _MOST_NORM_BARS:
        step *= 2
    merged = dict.fromkeys(range(first // step, last // step + 1), 0)
    below = above = 0
    for place, rows in rows_at.items():
        if place // step < first // step:
            below += rows
        elif place // step > last // step:
            above += rows
        else:
            merged[place // step] += rows
    low, high = norm_boundary(first // step * step), norm_boundary((last // step + 1) * step)
    inner = [
        (f"{norm_boundary(i * step):.3g} .. {norm_boundary((i + 1) * step):.3g}", rows)
        for i, rows in merged.items()
    ]
    lower = [(f"< {low:.3g}", below)] if below else []
    upper = [(f">= {high:.3g}", above)] if above else []
    return [*zeros, *lower, *inner, *upper]


def _bar(rows: int, most: int, width: int, blocks: bool) -> str:
    if not rows:
        return ""
    if not blocks:
        return _ASCII * max(1, round(width * rows / most))
    eighths = max(1, round(8 * width * rows / most))
    whole, rest = divmod(eighths, 8)
    return _BLOCKS[7] * whole + (_BLOCKS[rest - 1] if rest else "")


def _whole_label(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} .. {last:,}"


def _place(b: Bin) -> int:
    return round(math.log2(b.low) * NORM_PARTS)


def _without_tails(rows_at: dict[int, int]) -> tuple[int, int]:
    """Returns the first and last place between tails of less than `_TAIL` of the rows each."""
    limit = _TAIL * sum(rows_at.values())
    ends = []
    for places in (sorted(rows_at), sorted(rows_at, reverse=True)):
        passed = 0
        for place in places:
            passed += rows_at[place]
            if passed >= limit:
                ends.append(place)
                break
    return ends[0], ends[1]
