"""The `features` section: the kinds of a file's columns, and the table of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hotrow.config.data import duplicates
from hotrow.config.section import Section, problem
from hotrow.spec import Combiner
from hotrow.spec.tables import DEFAULT_COMBINER

MISSING_BUCKET = -1
"""Key of a missing value in a bucketized column."""

# Buckets of their own for < 0, 0, 1 and 2, then floor(log(x) ** 2) up to 1e9: the transform of the
# winners of Criteo's Kaggle competition (Juan et al., "3 Idiots", 2014).
_LOG_BOUNDARIES = (0.0, 1.0, 2.0, *(math.exp(math.sqrt(k)) for k in range(1, 430)))


DEFAULT_TABLE = "default"
WIDE = "wide"
"""Key of the settings of all linear (width 1) tables, and the suffix of their names."""


def own_table(column: str) -> str:
    """Returns the table name of a column that shares no table: the column's own name.

    `default` and `wide` have a meaning under `tables`. The tables of columns with these names are
    `default/deep` and `wide/deep`, beside their linear ones, `default/wide` and `wide/wide`.
    """
    return f"{column}/deep" if column in (DEFAULT_TABLE, WIDE) else column


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """A numeric column that enters the dense part, with its transform (see `DenseGroup`)."""

    name: str
    transform: Literal["none", "log"]
    standardize: bool


@dataclass(frozen=True, slots=True)
class SparseColumn:
    """A column of keys and the table it points at.

    Attributes:
        name: the file's column.
        table: the table's name; columns with the same table share its rows. A column without
            `table` has a table of its own, with its name; see `own_table`.
        dim: width D of the table's weights.
        hash: values are strings; their keys are Fingerprint64 of `key_prefix + value`. Otherwise
            values are integer keys.
        combiner: how the rows of one example are pooled; None: exactly one key an example.
        separator: the separator between the values of a multi-valued column of texts, else None.
        lists: whether the file has a list of values for each row.
        boundaries: sorted bounds of a bucketized numeric column, else None. The key of x is the
            number of boundaries <= x, compared as float32 (`searchsorted(side="right")`). The key
            of a missing x is `MISSING_BUCKET`.
    """

    name: str
    table: str
    dim: int
    hash: bool
    combiner: Combiner | None
    separator: str | None
    lists: bool
    boundaries: tuple[float, ...] | None

    @property
    def wide_table(self) -> str:
        """Name of the column's linear (width 1) table, and of the feature that reads it."""
        return f"{self.name}/{WIDE}"

    @property
    def key_prefix(self) -> bytes:
        """The prefix of a value in its fingerprint.

        It names the table, which is the column unless the table is shared. So columns that share a
        table map the same value to the same row.
        """
        return self.table.encode() + b"\x1f"


class DenseGroup(Section):
    """Numeric columns with one transform.

    Attributes:
        columns: the columns' names.
        transform: `log` is sign(x) * log1p(|x|), for counts; `none` leaves x as it is.
        standardize: after the transform, subtract the mean and divide by the deviation; both are
            measured on the first rows of the training file. A missing value becomes 0 at the end.
    """

    columns: tuple[str, ...] = Field(min_length=1)
    transform: Literal["none", "log"] = "none"
    standardize: bool = False


class SparseGroup(Section):
    """Columns of keys with one width and one conversion to keys.

    Attributes:
        columns: the columns' names.
        dim: width D of the embedding.
        hash: values are strings, hashed to 64-bit keys; false: they are integers.
        table: the table that all these columns share; None: each column has a table with its name.
        combiner: `sum`, `mean`, `sqrtn` pool the rows of one example; `none`: one key each.
        separator: the separator between the values of a multi-valued column.
        lists: the columns are stored as lists, as Parquet can; None: as the training file stores
            them.
        buckets: boundaries that cut a numeric column into integer keys, or `log`: one bucket each
            for < 0, 0, 1 and 2, then floor(log(x) ** 2).
    """

    columns: tuple[str, ...] = Field(min_length=1)
    dim: int = Field(ge=1)
    hash: bool = True
    table: str | None = Field(default=None, min_length=1)
    combiner: Combiner | None = DEFAULT_COMBINER
    separator: str | None = Field(default=None, min_length=1)
    lists: bool | None = None
    buckets: Literal["log"] | tuple[float, ...] | None = None

    @field_validator("combiner", mode="before")
    @classmethod
    def _none_by_name(cls, combiner: Any) -> Any:
        return None if combiner == "none" else combiner

    @field_validator("buckets", mode="before")
    @classmethod
    def _sorted_boundaries(cls, buckets: Any) -> Any:
        if buckets is None or buckets == "log":
            return buckets
        numbers = isinstance(buckets, tuple) and all(
            isinstance(b, int | float) and not isinstance(b, bool) and math.isfinite(b)
            for b in buckets
        )
        if not numbers or not buckets or any(a >= b for a, b in pairwise(buckets)):
            raise problem(f"{buckets!r}: expected 'log' or a list of increasing numbers")
        return tuple(float(b) for b in buckets)

    @model_validator(mode="after")
    def _options_fit(self) -> SparseGroup:
        if self.separator is not None and self.combiner is None:
            raise problem(
                "combiner 'none' needs exactly one key an example, but a separator is set; "
                "choose sum, mean or sqrtn"
            )
        if self.lists and self.combiner is None:
            raise problem(
                "combiner 'none' needs exactly one key an example, but the columns are lists: "
                f"{', '.join(self.columns)}; choose sum, mean or sqrtn"
            )
        if self.lists and self.separator is not None:
            raise problem(
                f"a separator cuts texts, but the columns are lists: {', '.join(self.columns)}; "
                "leave separator out"
            )
        if self.lists and self.buckets is not None:
            raise problem(
                "buckets are for single numbers, but the columns are lists: "
                f"{', '.join(self.columns)}; leave buckets out"
            )
        if self.buckets is not None and self.separator is not None:
            raise problem("buckets are for single numbers, but a separator is set; leave one out")
        return self

    def boundaries(self) -> tuple[float, ...] | None:
        """Returns the bucket boundaries, or None when the columns are not bucketized."""
        return _LOG_BOUNDARIES if self.buckets == "log" else self.buckets


class FeaturesConfig(Section):
    """The columns that a model reads; one group or a list of groups of each kind."""

    dense: tuple[DenseGroup, ...] = ()
    sparse: tuple[SparseGroup, ...] = ()

    @field_validator("dense", "sparse", mode="before")
    @classmethod
    def _one_group_or_more(cls, groups: Any) -> Any:
        single = isinstance(groups, Mapping | DenseGroup | SparseGroup)
        return (groups,) if single else groups

    @model_validator(mode="after")
    def _columns_agree(self) -> FeaturesConfig:
        dense, sparse = self.dense_columns(), self.sparse_columns()
        if not dense and not sparse:
            raise problem("no columns; name the file's columns under dense or sparse")
        for kind, names in (
            ("dense", [c.name for c in dense]),
            ("sparse", [c.name for c in sparse]),
        ):
            if twice := duplicates(names):
                raise problem(f"column {twice[0]!r} is named twice under {kind}; name it once")
        dense_names = {column.name for column in dense}
        dims: dict[str, SparseColumn] = {}
        for column in sparse:
            if column.name.endswith(f"/{WIDE}"):
                raise problem(
                    f"column {column.name!r} has the name of a linear table (<column>/{WIDE}); "
                    "rename it in the file"
                )
            if column.name in dense_names and column.boundaries is None:
                raise problem(
                    f"column {column.name!r} is both dense and sparse; name it once, or give its "
                    "sparse group `buckets`"
                )
            first = dims.setdefault(column.table, column)
            if first.dim != column.dim:
                raise problem(
                    f"table {column.table!r} has dim {first.dim} for column {first.name!r} and "
                    f"{column.dim} for {column.name!r}; a shared table has one dim"
                )
        return self

    def dense_columns(self) -> tuple[DenseColumn, ...]:
        """Returns the dense columns, in the order of a batch's dense matrix."""
        return tuple(
            DenseColumn(name, group.transform, group.standardize)
            for group in self.dense
            for name in group.columns
        )

    def sparse_columns(self) -> tuple[SparseColumn, ...]:
        """Returns the sparse columns, in the order of the configuration."""
        return tuple(
            SparseColumn(
                name=name,
                table=group.table or own_table(name),
                dim=group.dim,
                hash=group.hash and group.buckets is None,
                combiner=group.combiner,
                separator=group.separator,
                lists=bool(group.lists),
                boundaries=group.boundaries(),
            )
            for group in self.sparse
            for name in group.columns
        )
