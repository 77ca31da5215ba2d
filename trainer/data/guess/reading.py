"""Guesses how to read a data file from the file alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, DataConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.columns import Column, ColumnKind
from hotrow.trainer.data.data_file import DataFile
from hotrow.trainer.data.delimited import DelimitedSource
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.format_guess import Format, guess_format
from hotrow.trainer.data.guess.dialect import guess_dialect, refuse_wrong_delimiter, sample_lines
from hotrow.trainer.data.guess.label import guess_label, guess_positive, two_valued
from hotrow.trainer.data.parquet import BATCH_ROWS, is_parquet, parquet_schema
from hotrow.trainer.data.parquet_lists import as_text

_SAMPLE_BATCHES = 16
_LIBSVM = re.compile(r"\S+(\s+-?\d+:\S+)+\s*(#.*)?")
_CRITEO_FIELDS = len(CRITEO_DENSE) + len(CRITEO_SPARSE)


@dataclass(frozen=True)
class Given:
    """The user's settings for a file; None: guess the setting."""

    format: Format | None = None
    columns: tuple[str, ...] | None = None
    delimiter: str | None = None
    label: str | None = None
    positive: str | None = None
    weights: bool = False


@dataclass(frozen=True)
class Reading:
    """How to read a file.

    Attributes:
        data: format and options; the file may lack the label column that it names.
        has_label: whether the file has a column of labels.
        reasons: the reason for each guessed key of `data`.
    """

    data: DataConfig
    has_label: bool
    reasons: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as plain values."""
        keys = ("format", "delimiter", "columns", "label", "positive")
        values = {key: getattr(self.data, key) for key in keys}
        return {**values, "label": self.data.label if self.has_label else None,
                "guessed": sorted(self.reasons)}  # fmt: skip


def guess_reading(path: Path, given: Given) -> Reading:
    """Returns how to read a file: the given settings, and guesses from its beginning for the rest.

    Raises:
        NotFoundError, DataError: the file is missing, empty or damaged.
        InvalidArgumentError: a given setting does not fit the format.
    """
    if is_parquet(path):
        names = tuple(parquet_schema(path).names)
        return _labelled(path, given, names, {"format": given.format or "parquet"}, {})
    lines = sample_lines(path)
    if not lines:
        raise DataError(f"{path} is empty; a data file has at least one line")
    reasons = {}
    data_format = given.format
    if data_format is None:
        by_name = _format_of_name(path)
        data_format = _format_of(lines, given, by_name)
        if data_format != by_name:
            reasons["format"] = "by the first lines"
    if data_format != "csv":
        label = given.label or "label"
        options = {"format": data_format, "label": label, "weights": given.weights}
        for key in ("columns", "delimiter", "positive"):
            if getattr(given, key) is not None:
                options[key] = getattr(given, key)
        first = lines[0].split("\t")
        has_label = data_format == "libsvm" or len(first) != _CRITEO_FIELDS
        return Reading(_data(path, options), has_label, reasons)
    if given.delimiter is not None:
        refuse_wrong_delimiter(path, lines, given.delimiter)
    dialect = guess_dialect(lines, given.delimiter)
    if given.delimiter is None:
        reasons["delimiter"] = f"it cuts line 1 into {len(dialect.names)} fields"
    options = {"format": "csv", "delimiter": dialect.delimiter}
    names = dialect.names
    if given.columns is not None:
        names = given.columns
        options["columns"] = names
    elif not dialect.header:
        options["columns"] = names
        reasons["columns"] = "line 1 looks like values, not like names"
    return _labelled(path, given, names, options, reasons)


def _labelled(
    path: Path,
    given: Given,
    names: tuple[str, ...],
    options: dict[str, Any],
    reasons: dict[str, str],
) -> Reading:
    """Returns the reading of a file with named columns, with its label and positive text."""
    options = {**options, "weights": given.weights, "positive": given.positive}
    if given.label is not None and given.label not in names:
        raise InvalidArgumentError(
            f"--label {given.label}: {path} has no such column; it has: {', '.join(names)}"
        )
    options["label"] = given.label
    if options["format"] not in ("csv", "parquet") or None not in (given.label, given.positive):
        options["label"] = given.label or "label"
        return Reading(_data(path, options), options["label"] in names, reasons)
    candidates = two_valued(_texts(path, names, _data(path, {**options, "label": names[0]})))
    if given.label is None:
        found = guess_label(names, candidates)
        options["label"] = "label" if found is None else found.value
        if found is not None:
            reasons = {**reasons, "label": found.reason}
    label = options["label"]
    if given.positive is None and label in candidates:
        positive = guess_positive(candidates[label])
        if positive is not None:
            options["positive"] = positive.value
            reasons = {**reasons, "positive": positive.reason}
    return Reading(_data(path, options), label in names, reasons)


def _format_of_name(path: Path) -> Format | None:
    try:
        return guess_format(path)
    except InvalidArgumentError:
        return None


def _format_of(lines: Sequence[str], given: Given, by_name: Format | None) -> Format:
    if given.columns or given.delimiter or given.positive:
        return "csv"
    if by_name == "libsvm" or _LIBSVM.fullmatch(lines[0]):
        return "libsvm"
    criteo = sum(_is_criteo(line) for line in lines)
    return "criteo" if 2 * criteo > len(lines) else "csv"


def _is_criteo(line: str) -> bool:
    fields = line.split("\t")
    if len(fields) == _CRITEO_FIELDS + 1:
        fields = fields[1:]
    counts = fields[: len(CRITEO_DENSE)]
    return len(fields) == _CRITEO_FIELDS and all(
        not count or re.fullmatch(r"-?\d+(\.\d*)?", count) for count in counts
    )


def _texts(path: Path, names: Sequence[str], data: DataConfig) -> Iterator[pa.RecordBatch]:
    """Yields the first rows of a file; every column with one value a row is read as text."""
    if is_parquet(path):
        with pq.ParquetFile(path) as file:
            flat = [f.name for f in file.schema_arrow if not pa.types.is_nested(f.type)]
            for batch in islice(file.iter_batches(BATCH_ROWS, columns=flat), _SAMPLE_BATCHES):
                arrays = [as_text(column) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        return
    columns = tuple(Column(name, ColumnKind.TEXT) for name in names)
    source = DelimitedSource(
        path=path,
        names=tuple(names),
        columns=columns,
        label=None,
        positive=None,
        delimiter=data.delimiter or ",",
        header=data.columns is None,
        quoted=True,
        trimmed=True,
    )
    file = DataFile(path, source, columns, data.model_copy(update={"on_malformed": "skip"}))
    yield from islice(file.record_batches(), _SAMPLE_BATCHES)


def _data(path: Path, options: dict[str, Any]) -> DataConfig:
    try:
        return DataConfig(train=str(path), **options)
    except ValidationError as err:
        raise InvalidArgumentError(f"{path}: {err.errors()[0]['msg']}") from err
