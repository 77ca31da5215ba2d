"""Checks early that `data.positive` is among the labels: a wrong text would show after an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.compute as pc

from hotrow.config import DataConfig
from hotrow.trainer.data.columns import Column, ColumnKind
from hotrow.trainer.data.data_files import Paths, each_path, with_rows
from hotrow.trainer.data.errors import DataError, EmptyFileError
from hotrow.trainer.data.malformed import shown
from hotrow.trainer.data.opening import open_data
from hotrow.trainer.data.pass_check import no_positive, shown_paths

CHECKED_ROWS = 100_000
_SHOWN_LABELS = 5


def check_positive(paths: Paths, data: DataConfig, report: Callable[[str], None]) -> None:
    """Looks for `data.positive` in the first `CHECKED_ROWS` rows of one file or several.

    It stops at the first one, so it usually reads one block of a file.

    Args:
        paths: labelled files.
        data: their format; without `positive` nothing is read.
        report: called with a line if these rows have none; further ones may.

    Raises:
        DataError: the files have no further rows, or a line is malformed and the policy is `fail`.
    """
    if data.positive is None:
        return
    files = each_path(paths)
    found: Counter[str] = Counter()
    for label, count in _labels(files, data):
        if label == data.positive:
            return
        found[label] += count
    rows = found.total()
    if rows < CHECKED_ROWS:
        message = no_positive(data.positive, rows)
        raise DataError(f"{shown_paths(files)}: {message}; seen: {_described(found)}")
    report(
        f"data.positive: no label is {data.positive!r} in the first {rows:,} rows; if none of the "
        f"others is, the first pass ends with an error; seen: {_described(found)}"
    )


def _labels(paths: Sequence[Path], data: DataConfig) -> Iterator[tuple[str, int]]:
    """Yields the labels of the first rows as texts, with their counts in each piece of a file."""
    unlabelled = data.model_copy(update={"label": None})  # the label is a column like others
    left = CHECKED_ROWS
    for path in with_rows(paths):
        try:
            file = open_data(path, unlabelled, columns=[Column(data.label, ColumnKind.TEXT)])
        except EmptyFileError:
            continue
        for batch in file.rows():
            texts = batch.column(0).slice(0, left)
            for pair in pc.value_counts(texts).to_pylist():
                yield pair["values"], pair["counts"]
            left -= len(texts)
            if not left:
                return


def _described(labels: Counter[str]) -> str:
    frequent = labels.most_common(_SHOWN_LABELS)
    parts = [f"{shown(label)} ({count:,})" for label, count in frequent]
    more = len(labels) - len(frequent)
    return ", ".join(parts) + (f" and {more:,} more" if more else "")
