"""Guesses the column of labels, and the text in it that means 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

NAMES = (
    "label", "target", "y", "class", "click", "clicked", "is_click", "is_clicked",
    "is_attributed", "conversion", "converted", "response", "outcome", "income", "churn",
    "purchase", "purchased", "survived", "deposit", "default",
)  # fmt: skip
_NUMBERS = {"0", "1", "0.0", "1.0"}
_POSITIVE = {"1", "1.0", "yes", "y", "true", "t", "positive", "pos", "click", "clicked", "high"}
_NEGATIVE = {"0", "0.0", "-1", "no", "n", "false", "f", "negative", "neg", "low"}


class Guess(NamedTuple):
    """A guessed value, and the reason for it."""

    value: str
    reason: str


def two_valued(batches: Iterable[pa.RecordBatch]) -> dict[str, dict[str, int]]:
    """Returns the columns with exactly two texts, and the count of each; empty texts do not count.

    Args:
        batches: string columns, of one schema.
    """
    counts: dict[str, dict[str, int]] | None = None
    for batch in batches:
        if counts is None:
            counts = {name: {} for name in batch.schema.names}
        for name, seen in list(counts.items()):
            for pair in pc.value_counts(batch.column(name)).slice(0, 4).to_pylist():
                if pair["values"]:
                    seen[pair["values"]] = seen.get(pair["values"], 0) + pair["counts"]
            if len(seen) > 2:
                del counts[name]
    return {name: seen for name, seen in (counts or {}).items() if len(seen) == 2}


def guess_label(names: Sequence[str], candidates: Mapping[str, object]) -> Guess | None:
    """Returns the column of labels among columns of two values; None if there is none.

    Args:
        names: all columns, in order.
        candidates: the columns of two values.
    """
    named = {name.casefold(): name for name in reversed(names) if name in candidates}
    for wanted in NAMES:
        if wanted in named:
            return Guess(named[wanted], "by its name, and it has two values")
    for name, place in ((names[-1], "last"), (names[0], "first")):
        if name in candidates:
            return Guess(name, f"the {place} column, and it has two values")
    if len(candidates) == 1:
        return Guess(next(iter(candidates)), "the only column with two values")
    return None


def guess_positive(counts: Mapping[str, int]) -> Guess | None:
    """Returns which of two labels means 1; None if they are 0 and 1.

    Args:
        counts: how often each of the two occurs.
    """
    if _NUMBERS.issuperset(counts):
        return None
    one, other = counts
    for value, rest in ((one, other), (other, one)):
        says_yes = value.casefold() in _POSITIVE or value.startswith(">")
        says_no = rest.casefold() in _NEGATIVE or rest.startswith("<")
        if (says_yes or says_no) and value.casefold() not in _NEGATIVE:
            return Guess(value, f"the other label is {rest!r}")
    rare, often = sorted(counts, key=lambda value: counts[value])
    return Guess(rare, f"the rarer label; the other is {often!r}")
