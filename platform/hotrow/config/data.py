"""The `data` section: the files of rows and how to read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from hotrow.config.section import Section, problem
from hotrow.errors import InvalidArgumentError, NotFoundError

CRITEO_LABEL = "label"
CRITEO_DENSE = tuple(f"I{i}" for i in range(1, 14))
CRITEO_SPARSE = tuple(f"C{i}" for i in range(1, 27))


def duplicates(names: Iterable[str]) -> list[str]:
    """Returns the names that occur more than once, in order of first appearance."""
    return [name for name, count in Counter(names).items() if count > 1]


class DataConfig(Section):
    """The files of a run and their format.

    Attributes:
        format: `criteo` (TSV: label, I1..I13, C1..C26), `csv` or `libsvm`, each plain or
            compressed; or `parquet`. A Parquet file is read as Parquet with any of them.
        train: the file of training rows, or several, which are read one after the other.
            `load_config` resolves relative paths.
        valid: the file of validation rows, or several, or None.
        batch_size: rows of one training step.
        columns: names of a CSV's columns when it has no header line; None: the header names them.
        delimiter: the character between a CSV's values; None: a comma.
        label: name of the label's column.
        weight: name of the column with a row's weight in loss and metrics, at least 0; None: each
            row weighs 1.
        positive: the label's text that means 1; every other text means 0. None: the label is
            numeric.
        weights: LibSVM values are the weights of their keys; otherwise they are ignored.
        on_malformed: `fail` stops at the first malformed line, `skip` leaves such lines out.
        order: of the rows on several ranks. `exact`: each rank reads all files, and the batches are
            those of one process. `sharded`: each reads its own part of the files.
    """

    format: Literal["criteo", "csv", "libsvm", "parquet"]
    train: str | tuple[str, ...]
    valid: str | tuple[str, ...] | None = None
    batch_size: int = Field(default=4096, ge=1)
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    label: str = CRITEO_LABEL
    positive: str | None = None
    weight: str | None = Field(default=None, min_length=1)
    weights: bool = False
    on_malformed: Literal["fail", "skip"] = "fail"
    order: Literal["exact", "sharded"] = "exact"

    @field_validator("train", "valid", mode="before")
    @classmethod
    def _one_path_or_several(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name == "valid":
            return None
        for path in value if isinstance(value, list | tuple) and value else [value]:
            if not isinstance(path, str) or not path:
                raise problem(f"{path!r} is not legal; expected a text, or a list of texts")
        return value

    @field_validator("columns")
    @classmethod
    def _distinct(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if columns is not None and (twice := duplicates(columns)):
            raise problem(f"{twice[0]!r} is named twice; every column needs its own name")
        return columns

    @model_validator(mode="after")
    def _options_fit_format(self) -> DataConfig:
        only = {
            "columns": ("csv",),
            "delimiter": ("csv",),
            "positive": ("csv", "parquet"),
            "weight": ("csv", "parquet"),
            "weights": ("libsvm",),
        }
        for option, formats in only.items():
            if getattr(self, option) not in (None, False) and self.format not in formats:
                raise problem(
                    f"{option} is an option of format {' or '.join(map(repr, formats))}, the "
                    f"format here is {self.format!r}; leave it out"
                )
        if self.columns is not None and self.weight not in (None, *self.columns):
            raise problem(
                f"weight {self.weight!r} is not one of columns {', '.join(self.columns)}; name the "
                "column of the rows' weights, or leave it out"
            )
        return self

    def known_columns(self) -> tuple[str, ...] | None:
        """Returns the columns besides label and weight, if the format or `columns` fixes them."""
        if self.format == "criteo":
            return CRITEO_DENSE + CRITEO_SPARSE
        if self.columns is not None:
            return tuple(
                column for column in self.columns if column not in (self.label, self.weight)
            )
        return None

    def require_files(self) -> None:
        """Checks that the files exist.

        Raises:
            NotFoundError: a file does not exist.
            InvalidArgumentError: a path is not a file.
        """
        for key, name in self._named_files():
            if not Path(name).exists():
                raise NotFoundError(f"{key}: no such file: {name}; give the path of a data file")
            if not Path(name).is_file():
                raise InvalidArgumentError(f"{key}: not a file: {name}; give one data file")

    def _named_files(self) -> Iterator[tuple[str, str]]:
        """Yields (key, path) of each file."""
        for key, names in (("data.train", self.train), ("data.valid", self.valid)):
            for name in (names,) if isinstance(names, str) else names or ():
                yield key, name
