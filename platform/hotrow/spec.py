"""What a table and a feature are: frozen descriptions that the layer, export and server share.

The names are those of keras-rs. A feature points at its table; features that point at one table
share its rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from hotrow.errors import InvalidArgumentError, nearest

Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS: tuple[str | None, ...] = (None, "sum", "mean", "sqrtn")
"""Legal combiners; the position is the number that the native core uses."""


def _require(condition: bool, what: str, value: object, legal: str) -> None:
    if not condition:
        raise InvalidArgumentError(f"{what} is {value!r}; must be {legal}")


@dataclass(frozen=True)
class Uniform:
    """Initial weights uniform in [-scale, scale)."""

    scale: float = 0.05


@dataclass(frozen=True)
class Normal:
    """Initial weights normal with mean 0 and deviation `stddev`."""

    stddev: float = 0.05


@dataclass(frozen=True)
class Constant:
    """Every initial weight is `value`."""

    value: float = 0.0


Initializer = Uniform | Normal | Constant


@dataclass(frozen=True)
class SGD:
    """w -= learning_rate * g."""

    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "SGD.learning_rate", self.learning_rate, "positive")


@dataclass(frozen=True)
class Adagrad:
    """Adagrad per weight, with the semantics of Keras' Adagrad.

    accumulator += g^2; w -= learning_rate * g / sqrt(accumulator + epsilon).
    """

    learning_rate: float = 0.05
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "Adagrad.learning_rate", self.learning_rate, "positive")
        _require(
            self.initial_accumulator_value >= 0,
            "Adagrad.initial_accumulator_value",
            self.initial_accumulator_value,
            "0 or more",
        )
        _require(self.epsilon > 0, "Adagrad.epsilon", self.epsilon, "positive")


TableOptimizer = SGD | Adagrad


@dataclass(frozen=True)
class TableConfig:
    """An embedding table: rows of one width and one optimizer, keyed by int64.

    Attributes:
        name: unique inside a layer. A row's initial value depends on it.
        embedding_dim: weights of a row, D.
        vocabulary_size: keys must lie in [0, vocabulary_size); None: every int64 is a key.
        initializer: of the weights; a row's first value is a pure function of the layer's seed,
            the table's name and the key.
        optimizer: updates the rows; the optimizer of the model updates dense weights only.
        combiner: how the rows of a sample are pooled; None leaves one row a key.
        default_value: of every weight of the row that an unknown key reads outside training.
        shards: pieces that the table is kept in; a key's piece is key mod shards.
        hash_owner: mix the key before the modulus.
    """

    name: str
    embedding_dim: int
    vocabulary_size: int | None = None
    initializer: Initializer = field(default_factory=Uniform)
    optimizer: TableOptimizer = field(default_factory=Adagrad)
    combiner: Combiner | None = "mean"
    default_value: float = 0.0
    shards: int = 1
    hash_owner: bool = False

    def __post_init__(self) -> None:
        where = f"table {self.name!r}: "
        _require(bool(self.name), "TableConfig.name", self.name, "a name")
        _require("\x00" not in self.name, "TableConfig.name", self.name, "without NUL")
        _require(
            isinstance(self.embedding_dim, int) and self.embedding_dim >= 1,
            where + "embedding_dim",
            self.embedding_dim,
            "1 or more",
        )
        _require(
            self.vocabulary_size is None or self.vocabulary_size >= 1,
            where + "vocabulary_size",
            self.vocabulary_size,
            "1 or more, or None",
        )
        _require(self.shards >= 1, where + "shards", self.shards, "1 or more")
        if self.combiner not in COMBINERS:
            legal = ", ".join(repr(c) for c in COMBINERS)
            raise InvalidArgumentError(
                f"{where}combiner is {self.combiner!r}; must be one of {legal}"
                + nearest(str(self.combiner), [c for c in COMBINERS if c])
            )
        for value, legal_types, what in (
            (self.initializer, (Uniform, Normal, Constant), "initializer"),
            (self.optimizer, (SGD, Adagrad), "optimizer"),
        ):
            if not isinstance(value, legal_types):
                names = ", ".join(f"hotrow.{t.__name__}(...)" for t in legal_types)
                raise InvalidArgumentError(f"{where}{what} is {value!r}; must be one of {names}")


@dataclass(frozen=True)
class FeatureConfig:
    """An input column that looks rows up in a table.

    Attributes:
        name: unique inside a layer; the key of the layer's input and output dictionaries.
        table: where its rows are.
        combiner: replaces the table's; "table" keeps it.
    """

    name: str
    table: TableConfig
    combiner: Combiner | Literal["table"] | None = "table"

    def __post_init__(self) -> None:
        _require(bool(self.name), "FeatureConfig.name", self.name, "a name")
        if self.combiner != "table" and self.combiner not in COMBINERS:
            raise InvalidArgumentError(
                f"feature {self.name!r}: combiner is {self.combiner!r}; must be one of 'table', "
                + ", ".join(repr(c) for c in COMBINERS)
            )

    @property
    def resolved_combiner(self) -> Combiner | None:
        """The combiner that applies to this feature."""
        return self.table.combiner if self.combiner == "table" else self.combiner


_KINDS: dict[str, type[Any]] = {c.__name__: c for c in (Uniform, Normal, Constant, SGD, Adagrad)}


def table_to_dict(table: TableConfig) -> dict[str, Any]:
    """Returns the table as JSON types; `table_from_dict` reads it back."""
    values = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
    for name in ("initializer", "optimizer"):
        values[name] = {"kind": type(values[name]).__name__, **dataclasses.asdict(values[name])}
    return values


def table_from_dict(values: dict[str, Any]) -> TableConfig:
    """Returns the table that `table_to_dict` wrote."""
    values = dict(values)
    for name in ("initializer", "optimizer"):
        options = dict(values[name])
        values[name] = _KINDS[options.pop("kind")](**options)
    return TableConfig(**values)
