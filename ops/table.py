"""A training table: hash table of row lines `[weights | optimizer state]` in host memory."""

from __future__ import annotations

import builtins
import dataclasses
import math
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import InvalidArgumentError
from hotrow.line_layout import LineLayout
from hotrow.ops import row_access
from hotrow.ops.placement import placement_of
from hotrow.ops.ranks import LONE, Ranks
from hotrow.ops.row_access import as_keys
from hotrow.ops.row_batch import Keys, Lines, RowBatch, Rows, Uint32s, ranges_of_mixed_keys
from hotrow.spec import (
    COMBINERS,
    DTYPES,
    FILTERS,
    OPTIMIZERS,
    POLICIES,
    SHARDINGS,
    Admission,
    Cache,
    Constant,
    Expiry,
    Ftrl,
    Normal,
    Schedule,
    TableConfig,
    TableOptimizer,
    Uniform,
)


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


def _optimizer_arguments(optimizer: TableOptimizer) -> dict[str, Any]:
    """Returns the fields of the core's `Optimizer` (optimizer.h)."""
    given = {f.name: getattr(optimizer, f.name) for f in dataclasses.fields(optimizer)}
    rate = given["learning_rate"]
    return {
        "kind": OPTIMIZERS.index(type(optimizer)),
        # With a schedule every step is given its own; NaN would show where that was forgotten.
        "learning_rate": math.nan if isinstance(rate, Schedule) else rate,
        "clip_row_norm": given["clip_row_norm"] or 0.0,
        "l2": 0.0 if isinstance(optimizer, Ftrl) else given["l2"],
        "weight_decay": given["weight_decay"],
        "momentum": given.get("momentum", 0.0),
        "nesterov": given.get("nesterov", False),
        "initial_accumulator": given.get("initial_accumulator_value", 0.0),
        "epsilon": given.get("epsilon", 0.0),
        "beta_1": given.get("beta_1", 0.0),
        "beta_2": given.get("beta_2", 0.0),
        "row_steps": given.get("bias_correction", "row") == "row",
        "l1": given.get("l1", 0.0),
        "ftrl_l2": given["l2"] if isinstance(optimizer, Ftrl) else 0.0,
        "l2_shrinkage": given.get("l2_shrinkage", 0.0),
        "beta": given.get("beta", 0.0),
    }


def _admission_arguments(admission: Admission | None) -> dict[str, Any]:
    if admission is None:
        return {"kind": 0, "occurrences": 1, "expected_keys": 0, "error_rate": 0.01}
    return {
        "kind": 1 + FILTERS.index(admission.filter),
        "occurrences": admission.occurrences,
        "expected_keys": admission.expected_keys or 0,
        "error_rate": admission.error_rate,
    }


def _expiry_arguments(expiry: Expiry | None) -> dict[str, int]:
    """Returns the core's options, 0 for what is off."""
    if expiry is None:
        return {"after_steps": 0, "rare_count": 0, "rare_after_steps": 0, "sweep_steps": 1}
    return {name: value or 0 for name, value in dataclasses.asdict(expiry).items()}


def _cache_arguments(
    cache: Cache | None, vocabulary_size: int | None, cuda_device: int | None
) -> dict[str, int | str]:
    if cache is None:
        return {"rows": 0, "bytes": 0, "policy": 0, "disk": ""}
    rows = cache.rows or 0
    if cache.ratio is not None:
        rows = max(round(cache.ratio * (vocabulary_size or 0)), 1)
    return {
        "rows": rows,
        "bytes": cache.bytes or 0,
        "policy": POLICIES.index(cache.policy),
        "disk": cache.disk or "",
        **({} if cuda_device is None else {"gpu": cuda_device}),
    }


def _sharding_arguments(config: TableConfig, ranks: Ranks) -> dict[str, int | str]:
    if ranks.size == 1:
        return {}
    owner = config.owner or 0
    if owner >= ranks.size:
        raise InvalidArgumentError(
            f"table {config.name!r}: owner is {owner}; must be below {ranks.size}, the ranks"
        )
    scheme = SHARDINGS.index(config.sharding)
    staleness = config.staleness
    return {
        "ranks": ranks.handle,
        "scheme": scheme,
        "owner": owner,
        "staleness": staleness.updates if staleness else 0,
        "replica_rows": staleness.rows if staleness else 0,
    }


class Table:
    """A table in the process-wide registry of the native core.

    It lives as long as this object; ops that run afterwards get NotFound.

    On several ranks it is this rank's part of the table: `lookup` and `update` are made by all
    ranks together, each with its own keys and whole rows; all else is about the part alone.

    N keys, D weights of a row (of `columns` in the lines of a part), L bytes of a row line.

    Attributes:
        config: what it was made from.
        ranks: those that the table is split over.
        handle: its unique name in the registry, the attribute of the ops.
        placement: where its ops run.
        history: a random id, another one whenever rows were changed by anything else than training:
            within one, the clocks show what has changed.
        forgotten_step: tombstones up to it were forgotten.

    Raises:
        FailedPreconditionError: its cache is on a GPU that is not there, or the native core was
            built without CUDA.
    """

    def __init__(self, config: TableConfig, seed: int, ranks: Ranks = LONE) -> None:
        self.config = config
        self.ranks = ranks
        self.placement = placement_of(config)
        # Unique among all processes: a SavedModel carries it into another one.
        self.handle = f"{config.name}#{uuid.uuid4().hex}"
        init_kind, init_scale = _initializer_arguments(config)
        self._native = _native.Table(
            handle=self.handle,
            name=config.name,
            width=config.embedding_dim,
            vocabulary_size=-1 if config.vocabulary_size is None else config.vocabulary_size,
            default_value=config.default_value,
            init_kind=init_kind,
            init_scale=init_scale,
            seed=seed,
            shards=config.shards,
            hashed=config.hash_owner,
            weights_type=DTYPES.index(config.dtype),
            state_type=DTYPES.index(config.state_dtype),
            optimizer=_optimizer_arguments(config.optimizer),
            admission=_admission_arguments(config.admission),
            expiry=_expiry_arguments(config.expiry),
            cache=_cache_arguments(
                config.cache, config.vocabulary_size, self.placement.cuda_device
            ),
            sharding=_sharding_arguments(config, ranks),
        )
        weakref.finalize(self, _native.drop_table, self.handle)
        self._first_step = 0
        self._empty_line: Lines | None = None
        self._begin_history()

    def _begin_history(self) -> None:
        self.history = uuid.uuid4().hex
        self.forgotten_step = 0

    @property
    def name(self) -> str:
        """The name of the configuration."""
        return self.config.name

    @property
    def dim(self) -> int:
        """Weights of a row, D."""
        return self.config.embedding_dim

    @property
    def columns(self) -> range:
        """Those of the D weights of each row that this part of the table has."""
        first, count = self._native.columns
        return range(first, first + count)

    def owns(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether the rows of keys int64 [N], or columns of them, are here."""
        owned: npt.NDArray[np.bool_] = self._native.owns(as_keys(keys)).view(np.bool_)
        return owned

    @property
    def default_value(self) -> float:
        """Every weight of the default row, as the table's type holds it."""
        return float(self._native.default_value)

    @property
    def layout(self) -> dict[str, int]:
        """What lies where in a row line, as JSON types; `line_layout` reads lines by it."""
        return dict(self._native.layout)

    @property
    def line_layout(self) -> LineLayout:
        """What lies where in a row line."""
        return LineLayout.from_facts(self.layout)

    @property
    def line_bytes(self) -> int:
        """Bytes of a row line, L."""
        return int(self._native.line_bytes)

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
        self._begin_history()
        self._native.step = self._first_step = value

    def lookup(self, keys: Keys, insert: bool = False) -> Rows:
        """Returns the rows float32 [N, D] of keys int64 [N], duplicates allowed.

        Args:
            keys: any int64 values, or those below `vocabulary_size`.
            insert: count an occurrence of each key, and give those that are admitted their initial
                row. A key without a row reads the default row.

        Raises:
            OutOfRangeError: a key outside of the vocabulary.
        """
        rows: Rows = self._native.lookup(as_keys(keys), insert)
        return rows

    def update(self, keys: Keys, gradients: Rows, learning_rate: float | None = None) -> None:
        """Sums gradients float32 [N, D] per distinct key and applies the optimizer once.

        Args:
            keys: int64 [N]; the gradients of those that are not admitted are dropped.
            gradients: float32 [N, D].
            learning_rate: of this step; None: the optimizer's, if it is a number.

        Raises:
            InvalidArgumentError: the optimizer has a schedule and no learning rate is given.
        """
        if learning_rate is None and isinstance(self.config.optimizer.learning_rate, Schedule):
            raise InvalidArgumentError(
                f"table {self.name!r} has a learning-rate schedule; give the learning_rate of the "
                "step"
            )
        self._native.update(
            as_keys(keys), np.ascontiguousarray(gradients, np.float32), learning_rate
        )

    def __len__(self) -> int:
        """Returns the number of rows (of this rank's part)."""
        return self.size

    def __bool__(self) -> bool:
        """True: a table without rows is a table."""
        return True

    def __contains__(self, key: object) -> bool:
        """Returns whether an int64 key has a row."""
        return bool(self.contains(np.array([key]))[0])

    def contains(self, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether keys int64 [N] have rows.

        Raises:
            InvalidArgumentError: keys that are not integers.
            UnimplementedError: the table is split over ranks.
        """
        return row_access.contains(self, keys)

    def assign(self, keys: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        """Sets the weights of rows, between steps; keys without a row get one.

        A row that exists keeps its optimizer state and count; a new one has the state of a row
        that no step has updated, whatever the table's admission. Its clock is the next step, so
        that incremental exports and checkpoints take it. 16-bit tables round to nearest.

        Args:
            keys: int64 [N], distinct.
            weights: float32 [N, D], finite.

        Raises:
            InvalidArgumentError: keys that are not integers or not distinct, weights of another
                shape or not finite.
            OutOfRangeError: a key outside of the vocabulary.
            FailedPreconditionError: a snapshot is open.
            UnimplementedError: the table is split over ranks.
        """
        row_access.assign(self, keys, weights)

    def remove(self, keys: npt.ArrayLike) -> int:
        """Removes the rows of keys int64 [N], between steps; returns how many there were.

        Tombstones of the next step remember them, so that incremental exports and checkpoints
        remove them too. A key that training looks up again gets its initial row.

        Raises:
            InvalidArgumentError: keys that are not integers.
            FailedPreconditionError: a snapshot is open.
            UnimplementedError: the table is split over ranks.
        """
        return row_access.remove(self, keys)

    def batches(self, batch_rows: int = row_access.BATCH_ROWS) -> Iterator[tuple[Keys, Rows]]:
        """Yields keys int64 [N] and weights float32 [N, D] of all rows, between steps.

        Args:
            batch_rows: most rows of a batch.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        return row_access.batches(self, batch_rows)

    def save_npz(self, path: str | Path) -> None:
        """Writes arrays `keys` int64 [R] and `weights` float32 [R, D] of all R rows, by way of RAM.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        row_access.save_npz(self, path)

    def save_parquet(self, path: str | Path) -> None:
        """Writes columns `key` int64 and `weights`, D float32, of all rows, a batch at a time.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        row_access.save_parquet(self, path)

    def like_one_row(self) -> Lines:
        """Returns the line uint8 [L] of a row with weights 0 that no step has updated."""
        config = dataclasses.replace(
            self.config, initializer=Constant(0.0), admission=None, expiry=None, cache=None
        )
        other = Table(config, 0)
        other.lookup(np.zeros(1, np.int64), insert=True)
        (batch,) = other.export_batches()
        line: Lines = batch.lines[0]
        return line

    def export_batches(self, batch_rows: int = 65536) -> Iterator[RowBatch]:
        """Yields all rows, at most `batch_rows` at once.

        Rows come by shard, partition and place. Nothing may train meanwhile; else read a
        `snapshot`.
        """
        layout = self.line_layout
        cursor, waiting = 0, 0
        pieces: list[list[Any]] = []
        while cursor >= 0:  # the core gives at most the rows of a partition at once
            cursor, keys, *more = self._native.export_rows(cursor, batch_rows - waiting)
            waiting += len(keys)
            pieces.append([keys, *more])
            if waiting and (waiting == batch_rows or cursor < 0):
                yield RowBatch(layout, *(np.concatenate(p) for p in zip(*pieces, strict=True)))
                waiting, pieces = 0, []

    def export_hash_ranges(self, most_rows: int) -> Iterator[RowBatch]:
        """Yields all rows: in each batch all rows of a range of mixed keys; the ranges ascend.

        Nothing may train meanwhile.

        Args:
            most_rows: ranges are as wide as makes batches of at most about so many rows.
        """
        yield from ranges_of_mixed_keys(
            self._native, self.line_layout, rows=self.size, most_rows=most_rows
        )

    def import_rows(
        self,
        keys: Keys,
        lines: Lines,
        clocks: Uint32s,
        counts: Uint32s,
        places: Uint32s | None = None,
    ) -> None:
        """Writes rows; the row of an existing key is replaced.

        Args:
            keys: int64 [N], distinct.
            lines: uint8 [N, L], in this table's layout.
            clocks: uint32 [N].
            counts: uint32 [N].
            places: uint32 [N], as exported from a table of as many shards: what the table does
                later is then the same to the bit. None: wherever there is room.
        """
        self._begin_history()
        self._native.import_rows(
            as_keys(keys),
            np.ascontiguousarray(lines, np.uint8),
            np.ascontiguousarray(clocks, np.uint32),
            np.ascontiguousarray(counts, np.uint32),
            None if places is None else np.ascontiguousarray(places, np.uint32),
        )

    def remove_rows(self, keys: Keys) -> int:
        """Removes the rows of keys int64 [N], without tombstones; returns how many there were."""
        self._begin_history()
        return int(self._native.remove_rows(as_keys(keys)))

    @staticmethod
    def push_all(tables: Iterable[Table], learning_rates: Sequence[float] | None = None) -> None:
        """Sends the owners of rows all pending gradients of their replicas.

        All ranks call it together, with the same tables; it is a step of those with staleness,
        whose rows are then those of the model as a whole. Other tables are left alone.

        Args:
            tables: of one layer.
            learning_rates: [T] of this step; None: the optimizers', which then are numbers.
        """
        native = [table._native for table in tables if table.ranks.size > 1]
        if native:
            _native.push_all(native, None if learning_rates is None else list(learning_rates))

    @staticmethod
    def send_ahead(tables: Iterable[Table], features: list[Any]) -> None:
        """Prefetches a batch of a layer on ranks; see `_native.rank_prefetch`."""
        _native.rank_prefetch([table._native for table in tables], features)

    def prefetch(self, keys: Keys) -> None:
        """Brings rows into the device tier before their batches ask for them, on another thread.

        Call it with the keys of a window, those of the next k batches one after the other, when
        the first batch of the window before it begins. The rows of both windows then stay until
        the next call. Nothing that the table computes changes. Without a cache: nothing happens.

        Args:
            keys: int64 [N], duplicates allowed; those without a row are left out. Copied.

        Raises:
            OutOfRangeError: a key outside of the vocabulary.
        """
        self._native.prefetch(as_keys(keys))

    def wait_for_prefetch(self) -> None:
        """Waits until the rows of all windows are in the device tier."""
        self._native.wait_for_prefetch()

    def warm_up(self, keys: Keys, counts: Uint32s, share: float = 0.7) -> int:
        """Fills the cache with the most frequent rows of a sample, and prefers them from now on.

        Args:
            keys: int64 [N], distinct.
            counts: uint32 [N], how often each key appeared in the sample.
            share: of the cache that may be filled, in [0, 1]; keys without a row only count.

        Returns:
            How many rows came in.

        Raises:
            InvalidArgumentError: share is out of its range.
            OutOfRangeError: a key outside of the vocabulary.
        """
        return int(
            self._native.warm_up(as_keys(keys), np.ascontiguousarray(counts, np.uint32), share)
        )

    def statistics(self) -> dict[str, int]:
        """Returns rows, bytes, lookups, admitted, refused, waiting, expired and tombstones.

        `refused` are occurrences of keys that were not admitted; `waiting` are keys that are
        counted and not admitted yet. Totals run since the table was made, also over a restoration.

        Of the device tier: `cache_slots` (0: there is none); in distinct keys of training batches
        `cache_hits` (and `cache_hit_lookups`, each key counted as often as it appeared),
        `cache_misses`, `cache_inserted` (rows that came in), `cache_evicted` (rows that left for
        them), `cache_written_back` (rows brought up to date in the host tier), `cache_prefetched`
        (rows that came in by prefetching); `cache_stall_ns`, the nanoseconds that lookups of
        training spent on bringing rows in or waiting for them. Of rows on disk:
        `disk_bytes` of the file (0: rows are in memory), `disk_lines_read`, `disk_lines_written`.
        These run since this process made the table; `cache_steps` are the steps since then or
        since a restoration.
        """
        return {
            **self._native.statistics(),
            "cache_steps": self.step - self._first_step if self.config.cache else 0,
        }

    def tombstones(self) -> tuple[Keys, Uint32s]:
        """Returns the expired keys int64 [N] and the steps uint32 [N] at which they expired."""
        keys, steps = self._native.tombstones()
        return keys, steps

    def forget_tombstones(self, up_to_step: int) -> None:
        """Forgets the tombstones of keys that expired at this step or before."""
        self.forgotten_step = max(self.forgotten_step, up_to_step)
        self._native.forget_tombstones(up_to_step)

    def state(self) -> builtins.bytes:
        """Returns all that is not rows: step, sweep, totals, tombstones, occurrences."""
        return self._native.state()

    def set_state(self, state: builtins.bytes) -> None:
        """Restores what `state` returned.

        Raises:
            DataLossError: it is damaged.
            FailedPreconditionError: it is of another admission or number of shards.
        """
        self._begin_history()
        self._native.set_state(state)
        self._first_step = self.step

    def merge_states(self, states: list[builtins.bytes], counted: list[bool]) -> None:
        """Restores what `state` returned on ranks that had the table, however it was split then.

        The step, totals, and the tombstones of keys that are owned here. Occurrences start anew.

        Args:
            states: of all of them.
            counted: of each, whether this table goes on with its totals.

        Raises:
            DataLossError: one is damaged.
        """
        self._begin_history()
        self._native.merge_states(states, counted)
        self._first_step = self.step

    def snapshot(self, since: Literal["all", "checkpoint"]) -> _native.Snapshot:
        """Returns the rows as they are now, to be read while training goes on.

        Args:
            since: "all" rows, or those updated or created since the last snapshot that was kept.
        """
        return self._native.snapshot(since)

    def digest(self, weights_only: bool = False) -> str:
        """Returns 32 hex digits that depend on the rows, not on their order.

        Args:
            weights_only: of keys and float32 weights alone; else of clocks, counts and state, too.
        """
        return str(self._native.digest(weights_only))

    def clear(self) -> None:
        """Removes every row and the gradients that wait, and forgets occurrences and tombstones."""
        self._begin_history()
        self._native.clear()
