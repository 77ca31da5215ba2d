"""Rows of LibSVM text, `label id:value id:value ...  # comment`, from blocks of lines.

A block is converted at once; when something in it is malformed, bisection finds the bad lines.
Labels are 0 or 1, or -1 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import Column
from hotrow.trainer.data.lines import LineBlock, line_blocks, lines_before
from hotrow.trainer.data.malformed import MalformedLog, Problem, shown
from hotrow.trainer.data.piece import Span
from hotrow.trainer.data.read_share import ReadShare
from hotrow.trainer.data.row_count import rows_of_lines
from hotrow.trainer.data.row_skip import RowSkip

WEIGHTS_SUFFIX = ".weights"
"""The weights of column `x` travel as column `x.weights` of a record batch."""


@dataclass(frozen=True)
class LibsvmSource:
    """A LibSVM file.

    Attributes:
        path: the file.
        column: name of the column of ids.
        label: name of the column of labels, or None: lines start with the first id.
        weights: read the values as weights; otherwise they are checked and dropped.
        span: the bytes to read; None: all.
    """

    path: Path
    column: Column
    label: str | None
    weights: bool
    span: Span | None = None

    unit = "line"

    def part(self, span: Span) -> LibsvmSource:
        """Returns a source of the lines that begin in these bytes; the file has plain text."""
        return replace(self, span=span)

    def lines_before(self) -> int:
        """Counts the lines before the span."""
        return 0 if self.span is None else lines_before(self.path, self.span[0])

    def record_batches(
        self, log: MalformedLog, share: ReadShare, skip: RowSkip
    ) -> Iterator[pa.RecordBatch]:
        """Yields the legal rows: label (float32), ids (list of int64), weights (list of float32).

        Of blocks that end before the position of `skip`, it counts the rows only.

        Raises:
            DataError: the file cannot be read, or a line is malformed and the policy is `fail`.
        """
        for block in line_blocks(self.path, share=share, skip=skip, span=self.span):
            if skip.left and skip.whole(_rows_of(block.data)):
                continue
            yield from self.block_rows(block, log)

    def block_rows(self, block: LineBlock, log: MalformedLog) -> list[pa.RecordBatch]:
        """Returns the legal rows of a block, and passes its other lines to `log`.

        Raises:
            DataError: a line is malformed and the policy is `fail`.
        """
        problems: list[Problem] = []
        batches = list(self._legal(block.data.split(b"\n"), block.first_line, problems))
        log.add(problems)
        return batches

    def _legal(
        self, lines: list[bytes], first_line: int, problems: list[Problem]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the legal lines; finds the others by bisection."""
        batch = self._convert(lines)
        if batch is not None:
            if batch.num_rows:
                yield batch
        elif len(lines) == 1:
            problems.append(Problem(first_line, self._what_is_wrong(lines[0])))
        else:
            half = len(lines) // 2
            yield from self._legal(lines[:half], first_line, problems)
            yield from self._legal(lines[half:], first_line + half, problems)

    def _convert(self, lines: list[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of lines, None when one line is malformed; blank lines give no row."""
        try:
            text = pa.array(lines, type=pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return None
        text = pc.ascii_trim_whitespace(pc.replace_substring_regex(text, "#.*$", ""))
        tokens = pc.ascii_split_whitespace(text.filter(pc.not_equal(text, "")))
        splits = tokens.offsets.to_numpy()
        words = tokens.flatten()
        labels = None
        if self.label is not None:
            is_label = np.zeros(len(words), dtype=np.bool_)
            is_label[splits[:-1]] = True
            labels = _labels(words.filter(pa.array(is_label)))
            if labels is None:
                return None
            words = words.filter(pa.array(~is_label))
            splits = splits - np.arange(len(splits), dtype=splits.dtype)
        pairs = _pairs(words)
        return None if pairs is None else self._batch(labels, splits, *pairs)

    def _what_is_wrong(self, line: bytes) -> str:
        words = line.decode(errors="replace").partition("#")[0].split()
        if self.label is not None:
            label = words.pop(0)
            if _labels(pa.array([label])) is None:
                return f"label is {shown(label)}, not 0, 1 or -1"
        bad = next((word for word in words if _pairs(pa.array([word])) is None), "")
        return f"{shown(bad)} is not id:value with a 64-bit integer and a finite number"

    def _batch(
        self, labels: pa.Array | None, splits: object, ids: pa.Array, values: pa.Array
    ) -> pa.RecordBatch:
        offsets = pa.array(splits, type=pa.int32())
        columns = {} if labels is None else {self.label: labels}
        columns[self.column.name] = pa.ListArray.from_arrays(offsets, ids)
        if self.weights:
            weights = pa.ListArray.from_arrays(offsets, values)
            columns[self.column.name + WEIGHTS_SUFFIX] = weights
        return pa.RecordBatch.from_pydict(columns)


def _rows_of(data: bytes) -> int:
    """Returns how many rows a block without malformed lines has."""
    return rows_of_lines(data, comment=b"#", returns_end_lines=False)


def _labels(text: pa.Array) -> pa.Array | None:
    """Returns the labels float32 [B] as 0 and 1, None when one is not legal."""
    values, _ = text_values.to_numbers(text)
    numbers = values.to_numpy(zero_copy_only=False)
    if not np.isin(numbers, (-1.0, 0.0, 1.0)).all():
        return None
    return pa.array(np.maximum(numbers, 0.0), type=pa.float32())


def _pairs(words: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Returns ids (int64 [N]) and values (float32 [N]) of `id:value` words, None if one is not."""
    pairs = pc.split_pattern(words, ":")
    if not (np.diff(pairs.offsets.to_numpy()) == 2).all():
        return None
    halves = pairs.flatten()
    ids, bad_ids = text_values.to_integers(halves.take(pa.array(np.arange(0, len(halves), 2))))
    values, bad = text_values.to_numbers(halves.take(pa.array(np.arange(1, len(halves), 2))))
    if bad_ids.any() or bad.any() or ids.null_count or values.null_count:
        return None
    return None if np.isnan(values.to_numpy()).any() else (ids, values)
