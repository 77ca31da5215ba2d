"""A training table: hash table of row lines `[weights D | optimizer state S]` in host memory."""

from __future__ import annotations

import dataclasses
import uuid
import weakref
from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import InvalidArgumentError, UnimplementedError
from hotrow.spec import (
    COMBINERS,
    SGD,
    Adagrad,
    Constant,
    Normal,
    Schedule,
    TableConfig,
    Uniform,
)

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]
Clocks = npt.NDArray[np.uint32]


def _as_keys(keys: npt.ArrayLike) -> Keys:
    """Returns keys as contiguous int64; refuses what would change its value on the way."""
    array = np.asarray(keys)
    if array.size and (array.dtype.kind not in "iu" or array.dtype == np.uint64):
        raise InvalidArgumentError(f"keys of type {array.dtype}; must be signed integers")
    return np.ascontiguousarray(array, np.int64)


def combiner_number(combiner: str | None) -> int:
    """Returns the native core's number of a combiner."""
    return COMBINERS.index(combiner)


def _initializer_arguments(config: TableConfig) -> tuple[int, float]:
    match config.initializer:
        case Constant(value):
            return 0, value
        case Uniform(scale):
            return 1, scale
        case Normal(stddev):
            return 2, stddev


def _refuse_unbuilt(config: TableConfig) -> None:
    optimizer = config.optimizer
    plain = TableConfig(config.name, config.embedding_dim)
    plain_optimizer = (
        dataclasses.replace(optimizer, l2=0.0, weight_decay=0.0, clip_row_norm=None)
        if isinstance(optimizer, SGD | Adagrad)
        else None
    )
    ready = (
        optimizer == plain_optimizer
        and not isinstance(optimizer.learning_rate, Schedule)
        and all(
            getattr(config, name) == getattr(plain, name)
            for name in ("dtype", "state_dtype", "admission", "expiry")
        )
    )
    if not ready:
        raise UnimplementedError(
            f"table {config.name!r}: {optimizer} with its row types, admission and expiry is "
            "legal, but not built yet; use hotrow.SGD or hotrow.Adagrad with a plain table"
        )


class Table:
    """A table in the process-wide registry of the native core.

    It lives as long as this object; ops that run afterwards get NotFound.

    N keys, D weights and S floats of optimizer state a row.

    Attributes:
        config: what it was made from.
        handle: its unique name in the registry, the attribute of the ops.
    """

    def __init__(self, config: TableConfig, seed: int) -> None:
        self.config = config
        # Unique among all processes: a SavedModel carries it into another one.
        self.handle = f"{config.name}#{uuid.uuid4().hex}"
        init_kind, init_scale = _initializer_arguments(config)
        optimizer = config.optimizer
        _refuse_unbuilt(config)
        adagrad = optimizer if isinstance(optimizer, Adagrad) else Adagrad()
        self._native = _native.Table(
            handle=self.handle,
            name=config.name,
            width=config.embedding_dim,
            vocabulary_size=-1 if config.vocabulary_size is None else config.vocabulary_size,
            default_value=config.default_value,
            init_kind=init_kind,
            init_scale=init_scale,
            seed=seed,
            optimizer_kind=0 if isinstance(optimizer, SGD) else 1,
            learning_rate=cast(float, optimizer.learning_rate),
            initial_accumulator=adagrad.initial_accumulator_value,
            epsilon=adagrad.epsilon,
            shards=config.shards,
            hashed=config.hash_owner,
        )
        weakref.finalize(self, _native.drop_table, self.handle)

    @property
    def name(self) -> str:
        """The name of the configuration."""
        return self.config.name

    @property
    def dim(self) -> int:
        """Weights of a row, D."""
        return self.config.embedding_dim

    @property
    def line_width(self) -> int:
        """Floats of a row line, D + S."""
        return int(self._native.line_width)

    @property
    def size(self) -> int:
        """Rows."""
        return int(self._native.size)

    @property
    def bytes(self) -> int:
        """Bytes of memory that the table holds."""
        return int(self._native.bytes)

    @property
    def step(self) -> int:
        """Commits so far; a row's clock is the step of its last update."""
        return int(self._native.step)

    @step.setter
    def step(self, value: int) -> None:
        self._native.step = value

    def lookup(self, keys: Keys, insert: bool = False) -> Rows:
        """Returns the rows float32 [N, D] of keys int64 [N], duplicates allowed.

        Args:
            keys: any int64 values, or those below `vocabulary_size`.
            insert: give unknown keys their initial row; otherwise they read the default row.

        Raises:
            OutOfRangeError: a key outside of the vocabulary.
        """
        rows: Rows = self._native.lookup(_as_keys(keys), insert)
        return rows

    def update(self, keys: Keys, gradients: Rows) -> None:
        """Sums gradients float32 [N, D] per distinct key and applies the optimizer once."""
        self._native.update(_as_keys(keys), np.ascontiguousarray(gradients, np.float32))

    def export_batches(self, batch_rows: int = 65536) -> Iterator[tuple[Keys, Rows, Clocks]]:
        """Yields (keys [n], lines [n, D + S], clocks [n]) of all rows, n <= batch_rows.

        Rows come shard by shard, in the order of insertion. Nothing may train meanwhile.
        """
        for shard in range(self._native.shard_count):
            size = self._native.shard_size(shard)
            for first in range(0, size, batch_rows):
                yield self._native.export_rows(shard, first, min(batch_rows, size - first))

    def import_rows(self, keys: Keys, lines: Rows, clocks: Clocks) -> None:
        """Writes row lines; the line of an existing key is replaced.

        Args:
            keys: int64 [N], distinct.
            lines: float32 [N, D + S].
            clocks: uint32 [N], the step of each row's last update.
        """
        self._native.import_rows(
            _as_keys(keys),
            np.ascontiguousarray(lines, np.float32),
            np.ascontiguousarray(clocks, np.uint32),
        )

    def digest(self, weights_only: bool = False) -> str:
        """Returns 32 hex digits that depend on keys and lines (or weights), not on their order."""
        return str(self._native.digest(weights_only))

    def clear(self) -> None:
        """Removes every row and the gradients that wait."""
        self._native.clear()
