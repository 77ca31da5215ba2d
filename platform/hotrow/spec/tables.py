"""Tables, and the features that point at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hotrow.errors import InvalidArgumentError
from hotrow.spec.admission import Admission, Expiry
from hotrow.spec.cache import Cache
from hotrow.spec.checks import is_integer, named_arguments, require, require_one_of
from hotrow.spec.initializers import INITIALIZERS, Initializer, Uniform
from hotrow.spec.optimizers import OPTIMIZERS, Adagrad, TableOptimizer
from hotrow.spec.staleness import Staleness

Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS: tuple[str | None, ...] = (None, "sum", "mean", "sqrtn")
"""Legal combiners."""
DEFAULT_COMBINER: Combiner = "mean"
"""The combiner of a table, in programs and in configurations, that names none."""

RowDtype = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[str, ...] = ("float32", "bfloat16", "float16")
"""Legal types of rows in memory."""

Sharding = Literal["row", "column", "row_broadcast", "table", "replicated"]
SHARDINGS: tuple[str, ...] = ("row", "column", "row_broadcast", "table", "replicated")
"""Ways to split a table over ranks."""


@named_arguments
@dataclass(frozen=True)
class TableConfig:
    """An embedding table: rows of one width and one optimizer, keyed by int64.

    Attributes:
        name: unique inside a layer. A row's initial value depends on it.
        embedding_dim: weights of a row, D.
        vocabulary_size: keys must lie in [0, vocabulary_size); None: every int64 is a key.
        initializer: initial weights; a row's initial value is a pure function of the layer's seed,
            the table's name and the key.
        optimizer: updates the rows; the optimizer of the model updates dense weights only.
        combiner: how the rows of a sample are pooled; None: no pooling, one row a key.
        default_value: value of every weight in the row that an unknown key reads outside training.
        shards: number of shards of the table in memory; a key's shard is key mod shards.
        hash_owner: mix the key before the modulus, for shards and for ranks.
        sharding: how the table is split over the ranks of a run, if there are several. "row": a
            rank has the rows whose key mod ranks is its number; "column": some columns of every
            row; "row_broadcast": as "row", but keys go to all ranks and sums come back; "table":
            one rank has all rows; "replicated": every rank has all rows.
        owner: for "table", the rank that has it; None: the table's number in the layer, mod ranks.
        staleness: for "row" and "table": each rank keeps replicas of hot rows, which may lag
            behind; None: every rank reads rows from their owner.
        dtype: type of the weights in memory. Arithmetic is always float32; an update rounds its
            result to a 16-bit type stochastically, so that small steps are preserved on average.
        state_dtype: the same for the optimizer's state of D values (a row's scalars are float32).
        admission: which keys get a row; None: every key that training looks up.
        expiry: when a row is removed; None: never.
        cache: the device tier; None: none.
    """

    name: str
    embedding_dim: int
    vocabulary_size: int | None = None
    initializer: Initializer = field(default_factory=Uniform)
    optimizer: TableOptimizer = field(default_factory=Adagrad)
    combiner: Combiner | None = DEFAULT_COMBINER
    default_value: float = 0.0
    shards: int = 1
    hash_owner: bool = False
    sharding: Sharding = "row"
    owner: int | None = None
    staleness: Staleness | None = None
    dtype: RowDtype = "float32"
    state_dtype: RowDtype = "float32"
    admission: Admission | None = None
    expiry: Expiry | None = None
    cache: Cache | None = None

    def __post_init__(self) -> None:
        where = f"table {self.name!r}: "
        require(bool(self.name), "TableConfig.name", self.name, "a name")
        require("\x00" not in self.name, "TableConfig.name", self.name, "without NUL")
        dim = self.embedding_dim
        require(is_integer(dim, 1), where + "embedding_dim", dim, "1 or more")
        require(
            self.vocabulary_size is None or self.vocabulary_size >= 1,
            where + "vocabulary_size",
            self.vocabulary_size,
            "1 or more, or None",
        )
        require(self.shards >= 1, where + "shards", self.shards, "1 or more")
        require_one_of(where + "sharding", self.sharding, SHARDINGS)
        require(
            self.owner is None or is_integer(self.owner, 0),
            where + "owner",
            self.owner,
            "a rank, or None",
        )
        require_one_of(where + "combiner", self.combiner, COMBINERS)
        require_one_of(where + "dtype", self.dtype, DTYPES)
        require_one_of(where + "state_dtype", self.state_dtype, DTYPES)
        self._require_instance("initializer", INITIALIZERS)
        self._require_instance("optimizer", OPTIMIZERS)
        optional = {
            "admission": Admission,
            "expiry": Expiry,
            "cache": Cache,
            "staleness": Staleness,
        }
        for name, legal in optional.items():
            if getattr(self, name) is not None:
                self._require_instance(name, (legal,))
        if self.cache is not None and self.cache.ratio is not None:
            require(
                self.vocabulary_size is not None,
                where + "vocabulary_size",
                self.vocabulary_size,
                "given with Cache(ratio=...), which is a share of it",
            )

    def _require_instance(self, name: str, legal: tuple[type[object], ...]) -> None:
        value = getattr(self, name)
        if type(value) not in legal:
            names = ", ".join(f"hotrow.{kind.__name__}(...)" for kind in legal)
            raise InvalidArgumentError(
                f"table {self.name!r}: {name} is {value!r}; must be one of {names}"
            )


@named_arguments
@dataclass(frozen=True)
class FeatureConfig:
    """An input column that looks rows up in a table.

    Attributes:
        name: unique inside a layer; the key of the layer's input and output dictionaries.
        table: the table that has its rows.
        combiner: replaces the table's; "table" keeps it.
        mask_value: the key that pads samples of fixed length: it reads no row, gets none, and does
            not count in the mean. An integer, or a string where keys are strings; None: no key.
    """

    name: str
    table: TableConfig
    combiner: Combiner | Literal["table"] | None = "table"
    mask_value: int | str | None = None

    def __post_init__(self) -> None:
        require(bool(self.name), "FeatureConfig.name", self.name, "a name")
        legal = ("table", *COMBINERS)
        where = f"feature {self.name!r}: "
        if not isinstance(self.table, TableConfig):
            raise InvalidArgumentError(
                f"{where}table is {self.table!r}; must be a hotrow.TableConfig(...)"
            )
        require_one_of(where + "combiner", self.combiner, legal)
        mask = self.mask_value
        require(
            mask is None or isinstance(mask, str) or is_integer(mask, -(2**63)),
            where + "mask_value",
            mask,
            "an int64 key, a string, or None",
        )
        require(
            mask is None or self.resolved_combiner is not None,
            where + "mask_value",
            mask,
            "None without a combiner, where each key gives one row",
        )

    @property
    def resolved_combiner(self) -> Combiner | None:
        """The combiner that applies to this feature."""
        return self.table.combiner if self.combiner == "table" else self.combiner
