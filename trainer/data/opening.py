"""`open_data`: opens a data file of any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, DataConfig, FeaturesConfig
from hotrow.errors import HotrowError, InvalidArgumentError, NotFoundError
from hotrow.trainer.data.columns import (
    LISTS,
    Column,
    ColumnKind,
    columns_of,
    default_columns,
    require_present,
)
from hotrow.trainer.data.data_file import DataFile, Source
from hotrow.trainer.data.delimited import DelimitedSource
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.guess.dialect import fields_of, refuse_wrong_delimiter, sample_lines
from hotrow.trainer.data.libsvm import WEIGHTS_SUFFIX, LibsvmSource
from hotrow.trainer.data.lines import first_line
from hotrow.trainer.data.parquet import ParquetSource, is_parquet, parquet_schema
from hotrow.trainer.data.stored_columns import require_fit, stored_columns


def open_data(
    path: str | Path,
    data: DataConfig,
    features: FeaturesConfig | None = None,
    *,
    columns: Sequence[Column] | None = None,
    require_labels: bool = False,
) -> DataFile:
    """Opens a data file, and reads its first line to check names and the number of fields.

    A file named `.parquet`, or with the magic of Parquet, is read as Parquet with any format.

    Args:
        path: the file: plain, gzip, zstd or bzip2 text, or Parquet.
        data: format and policy; its `train` and `valid` are not used.
        features: read the columns that these features need.
        columns: read these columns instead, as a client with a model's inputs does. Without
            `features` and `columns`, every column is read, as the kind of `default_columns` or of
            the stored type.
        require_labels: refuse a file without labels; otherwise such a file gives `labels=None`.
            With `features` it also reads the weights of rows, if `data` names a column of them.

    Raises:
        NotFoundError: the file does not exist.
        InvalidArgumentError: a column is not in the file.
        DataError: the file is empty or unreadable, or lacks required labels.
    """
    path = Path(path)
    chosen: tuple[Column, ...] | None = None
    if columns is not None:
        chosen = tuple(columns)
    elif features is not None:
        chosen = columns_of(features, data.format)
        if data.weight is not None and require_labels:
            chosen = (*chosen, Column(data.weight, ColumnKind.WEIGHT))
    stored = parquet_schema(path) if is_parquet(path) else None
    if stored is not None:
        names = list(stored.names)
    elif data.format == "parquet":
        raise _not_parquet(path)
    else:
        names = _names(path, data, require_labels)
    label = data.label if data.label in names else None
    if require_labels and label is None:
        raise DataError(
            f"{path} has no label column {data.label!r}; it has: {', '.join(names)}; set "
            "data.label (--label)"
        )
    inputs = [name for name in names if name != label]
    if stored is not None:
        kinds = {column.name: column.kind for column in stored_columns(stored)}
        ids = {name for name, kind in kinds.items() if kind is ColumnKind.IDS}
        inputs = [name for name in inputs if name.removesuffix(WEIGHTS_SUFFIX) not in ids - {name}]
        if chosen is None:
            chosen = tuple(Column(name, kinds[name]) for name in inputs if name in kinds)
        require_present(chosen, inputs, str(path))
        require_fit(chosen, stored, path)
        return DataFile(
            path, ParquetSource(path, chosen, label, data.positive, data.weights), chosen, data
        )
    if chosen is None:
        chosen = default_columns(data.format, inputs)
    if data.format != "libsvm":
        require_present(chosen, inputs, str(path))
        _require_no_lists(chosen, path)
    source = _text_source(path, data, tuple(names), chosen, label)
    return DataFile(path, source, chosen, data)


def _not_parquet(path: Path) -> HotrowError:
    if not path.exists():
        return NotFoundError(f"data file {path} does not exist")
    return DataError(
        f"{path} is not Parquet, but data.format is 'parquet'; set the format of the file"
    )


def _require_no_lists(columns: Sequence[Column], path: Path) -> None:
    for column in columns:
        if column.kind in LISTS:
            raise InvalidArgumentError(
                f"{path}: column {column.name!r} is a list of values for each row, which a text "
                "file does not hold; give a Parquet file with lists"
            )


def _text_source(
    path: Path,
    data: DataConfig,
    names: tuple[str, ...],
    columns: tuple[Column, ...],
    label: str | None,
) -> Source:
    if data.format == "libsvm":
        return LibsvmSource(path, columns[0], label, data.weights)
    is_csv = data.format == "csv"
    return DelimitedSource(
        path=path,
        names=names,
        columns=columns,
        label=label,
        positive=data.positive,
        delimiter=_delimiter(data),
        header=is_csv and data.columns is None,
        quoted=is_csv,
        trimmed=is_csv,
        text_labels=is_csv,
    )


def _names(path: Path, data: DataConfig, require_labels: bool) -> list[str]:
    """Returns the names of a file's fields, including the label if the file has labels."""
    line = first_line(path)
    if data.format == "libsvm":
        words = line.split()
        labelled = require_labels or not words or ":" not in words[0]
        return [data.label] if labelled else []
    if data.format == "criteo":
        inputs = [*CRITEO_DENSE, *CRITEO_SPARSE]
        unlabelled = line.count("\t") + 1 == len(inputs) and not require_labels
        return inputs if unlabelled else [data.label, *inputs]
    fields = fields_of(line, _delimiter(data))
    if len(fields) == 1 and len(data.columns or ()) != 1:
        refuse_wrong_delimiter(path, sample_lines(path), _delimiter(data))
    if data.columns is None:
        return _header(path, fields)
    if len(fields) != len(data.columns):
        raise DataError(
            f"{path}: data.columns names {len(data.columns)} columns, but the first line has "
            f"{len(fields)} fields; check data.columns and data.delimiter"
        )
    return list(data.columns)


def _header(path: Path, names: list[str]) -> list[str]:
    for name in names:
        if not name or names.count(name) > 1:
            raise DataError(
                f"{path}: line 1: the header names {name!r} {names.count(name)} times; every "
                "column needs a name of its own (without a header, set data.columns)"
            )
    return names


def _delimiter(data: DataConfig) -> str:
    return "\t" if data.format == "criteo" else data.delimiter or ","
