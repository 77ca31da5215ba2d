"""The native core of Hotrow: dispatch, tables, stores, the serving registry.

Written by hand beside ops/native/python/; a test compares the names. N keys, U distinct keys, D
weights a row, S floats of optimizer state. Arrays are C-contiguous. Failed calls raise the
exceptions of `hotrow.errors`; wrong lengths raise ValueError.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]
_Uint64s = npt.NDArray[np.uint64]
_Uint32s = npt.NDArray[np.uint32]
_Bytes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]

built_for_tensorflow: str

# Numbers of the core's enums, by kind and name: "optimizer", "row_type", "sharding", ...
NUMBERS: dict[str, dict[str, int]]

def set_error_factory(factory: Callable[[int, str], Exception]) -> None: ...
def fingerprint64(values: list[bytes], prefix: bytes = b"") -> _Int64s: ...
@overload
def fingerprint64_arrow(offsets: _Int64s, data: _Bytes, prefix: bytes = b"") -> _Int64s: ...
@overload
def fingerprint64_arrow(offsets: _Int32s, data: _Bytes, prefix: bytes = b"") -> _Int64s: ...
def unique(keys: _Int64s) -> tuple[_Int64s, _Int32s]: ...
def group_by_owner(
    keys: _Int64s, shards: int, hashed: bool = False
) -> tuple[_Int64s, _Int32s, _Int64s]: ...

class Table:
    """A table of the process-wide registry.

    optimizer: `kind` (0 SGD, 1 Momentum, 2 Adagrad, 3 RowwiseAdagrad, 4 Adam, 5 FTRL),
    `learning_rate`, `clip_row_norm` (0: none), `l2`, `weight_decay`, `momentum`, `nesterov`,
    `initial_accumulator`, `epsilon`, `beta_1`, `beta_2`, `row_steps`, `l1`, `ftrl_l2`,
    `l2_shrinkage`, `beta`. admission: `kind` (0 always, 1 counter, 2 Bloom), `occurrences`,
    `expected_keys`, `error_rate`. expiry: `after_steps`, `rare_count`, `rare_after_steps`,
    `sweep_steps`, `tombstones`. cache: `rows` or `bytes` (both 0: none), `policy` (0 LFU, 1 LRU),
    `disk` (directory, or "": none), `gpu` (CUDA's number of the GPU that has it: then steps are
    `device_forward` and `device_backward`; absent: in RAM). Types: 0 float32, 1 bfloat16, 2
    float16. sharding: nothing, or `ranks` (the name of their collectives), `scheme` (0 row, 1
    column, 2 row_broadcast, 3 table, 4 replicated), `owner` (3: the rank that has the table),
    `staleness` (updates; 0: none) and `replica_rows`: then this is one rank's part of a table,
    `width` and `lookup` are of whole rows, everything else is of the part.
    """

    def __init__(
        self,
        *,
        handle: str,
        name: str,
        width: int,
        vocabulary_size: int,
        default_value: float,
        init_kind: int,
        init_scale: float,
        seed: int,
        optimizer: dict[str, float | bool],
        weights_type: int,
        state_type: int,
        admission: dict[str, float],
        expiry: dict[str, int],
        cache: dict[str, int | str],
        shards: int,
        hashed: bool,
        sharding: dict[str, int | str] = ...,
    ) -> None: ...
    @property
    def handle(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def columns(self) -> tuple[int, int]: ...
    def owns(self, keys: _Int64s) -> _Bytes: ...
    @property
    def line_bytes(self) -> int: ...
    @property
    def layout(self) -> dict[str, int]: ...
    @property
    def default_value(self) -> float: ...
    @property
    def size(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def step(self) -> int: ...
    @step.setter
    def step(self, step: int) -> None: ...
    @property
    def shard_count(self) -> int: ...
    def lookup(self, keys: _Int64s, insert: bool = False) -> _Floats: ...
    def update(
        self, keys: _Int64s, gradients: _Floats, learning_rate: float | None = None
    ) -> None: ...
    def export_rows(
        self, cursor: int, max_rows: int
    ) -> tuple[int, _Int64s, _Bytes, _Uint32s, _Uint32s, _Uint32s]: ...
    def import_rows(
        self,
        keys: _Int64s,
        lines: _Bytes,
        clocks: _Uint32s,
        counts: _Uint32s,
        places: _Uint32s | None = None,
    ) -> None: ...
    def remove_rows(self, keys: _Int64s) -> int: ...
    def read_rows(
        self, keys: _Int64s
    ) -> tuple[_Bytes, _Int64s, _Bytes, _Uint32s, _Uint32s, _Uint32s]: ...
    def has_rows(self, keys: _Int64s) -> _Bytes: ...
    def bury_rows(self, keys: _Int64s) -> int: ...
    def prefetch(self, keys: _Int64s) -> None: ...
    def wait_for_prefetch(self) -> None: ...
    def warm_up(self, keys: _Int64s, counts: _Uint32s, share: float) -> int: ...
    def digest(self, weights_only: bool = False) -> str: ...
    def statistics(self) -> dict[str, int]: ...
    def begin_publishing(self, since: int | None) -> None: ...
    def mark_for_publishing(self, keys: _Int64s) -> None: ...
    @property
    def marked_rows(self) -> int: ...
    def tombstones(self) -> tuple[_Int64s, _Uint32s]: ...
    def forget_tombstones(self, up_to_step: int) -> None: ...
    def keep_tombstones(self) -> None: ...
    @property
    def forgotten_step(self) -> int: ...
    def state(self) -> builtins.bytes: ...
    def set_state(self, state: builtins.bytes) -> None: ...
    def merge_states(self, states: list[builtins.bytes], counts: list[bool]) -> None: ...
    def clear(self) -> None: ...

class Snapshot:
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def state(self) -> builtins.bytes:
        """`Table.state` of the moment; empty for "publish"."""

    @property
    def removed(self) -> _Int64s:
        """Keys that lost their row since the last kept snapshot; for "all" none.

        For "publish" also the keys marked without a row.
        """

    @property
    def copied_bytes(self) -> int:
        """Memory of the copies of rows that training changed before they were read."""

    @property
    def short_of_memory(self) -> bool:
        """Whether the snapshots opened together should be read where `copied_bytes` is largest."""

    @property
    def nonfinite_rows(self) -> int:
        """How many of the rows that were read so far hold a NaN or an infinity."""
    @property
    def waited_seconds(self) -> float:
        """How long training waited for readers because the copies took too much memory."""

    @property
    def lost(self) -> bool:
        """Whether it was given up before it was read to its end: reads fail, rows stay marked."""

    def read(self, max_rows: int) -> tuple[_Int64s, _Bytes, _Uint32s, _Uint32s, _Uint32s]: ...
    def read_into(
        self,
        keys: _Int64s,
        lines: _Bytes,
        clocks: _Uint32s,
        counts: _Uint32s,
        places: _Uint32s,
    ) -> int:
        """Writes up to N rows to arrays [N, ...] and returns how many; 0 at the end."""

    def add_unchanged(self, max_rows: int) -> int:
        """Adds rows that `read` leaves out, since they are not due, to the digest; 0 at the end."""

    @property
    def digests_all(self) -> bool:
        """Whether there is a digest at the end.

        There is none of an increment of lines on disk, and none of "publish".
        """

    @property
    def digest(self) -> str | None:
        """`Table.digest` of the moment, once `read` and `add_unchanged` have returned 0."""

    def keep(self) -> None:
        """Closes it; the next snapshot with the same marks starts from this one.

        Raises:
            FailedPreconditionError: of "publish", it was lost or not read to its end.
        """

    def close(self) -> None:
        """Closes it, unless it is closed: its rows and removed keys are marked again."""

def open_snapshots(tables: list[Table], since: str) -> list[Snapshot]:
    """Returns a snapshot of each table; the copies of rows share one budget of memory.

    since: "all", "checkpoint" or "publish". The budget is 10 % of the tables' memory, at least 64
    MiB. When it is used up, training waits for the readers of the first two; when they read nothing
    for 120 s meanwhile, all of the snapshots are lost. Those for "publish" are lost at once.
    """

def lines_digest(keys: _Int64s, lines: _Bytes, clocks: _Uint32s, counts: _Uint32s) -> str:
    """Returns the digest of rows, as `Table.digest` of a table with these rows alone.

    keys: int64 [N]. lines: uint8 [N, L]. clocks, counts: uint32 [N].
    """

def rank_prefetch(
    tables: list[Table],
    features: list[tuple[str, _Int64s, _Int64s | None, _Floats | None, int, int, int]],
) -> None: ...
def push_all(tables: list[Table], learning_rates: list[float] | None = None) -> None: ...
def drop_table(handle: str) -> None: ...

class DeviceFeature:
    """The input of a feature on a GPU: arrays of PyTorch, CuPy, JAX or whatever speaks DLPack.

    keys: int64 [N]. row_splits: int64 [B + 1], or None: sample b has key b alone. weights: float32
    [N]. combiner: 0 none, 1 sum, 2 mean, 3 sqrtn. table: its number in the call.
    """

    def __init__(
        self,
        keys: object,
        *,
        table: int = 0,
        row_splits: object | None = None,
        weights: object | None = None,
        combiner: int = 0,
    ) -> None: ...

class Threads:
    """Threads for the host's part of a step: rows that come in or go out."""

    def __init__(self, count: int) -> None: ...

# pooled, gradients: float32 [B, D] of each feature, or [N, D] without a combiner, on the GPU.
# stream: a cudaStream_t as an integer; arrays must be ready in its order and live until it is done.
# what: 0 gradients wait in the slot, below 256, for device_commit; 1 in the slot and applied at
# once; 2 outside of any step, applied at once. commit_token: [256], in the host's memory.
def device_forward(
    tables: list[Table],
    features: list[DeviceFeature],
    pooled: list[object],
    *,
    insert: bool = True,
    stream: int = 0,
    threads: Threads | None = None,
) -> tuple[int, int]: ...
def device_backward(
    tables: list[Table],
    features: list[DeviceFeature],
    gradients: list[object],
    *,
    ticket: int = 0,
    learning_rates: list[float] | None = None,
    global_clip_norm: float = 0.0,
    what: int = 2,
    slot: int = 0,
    stream: int = 0,
    threads: Threads | None = None,
) -> None: ...
def device_commit(
    tables: list[Table],
    commit_token: _Floats,
    *,
    learning_rates: list[float] | None = None,
    global_clip_norm: float = 0.0,
    stream: int = 0,
    threads: Threads | None = None,
) -> None: ...

class RowReader:
    @property
    def tables(self) -> list[tuple[str, int, str, int, float, int]]: ...
    def read(
        self, requests: list[tuple[int, _Int64s]], timeout_seconds: float = 10.0
    ) -> tuple[list[tuple[_Bytes, _Uint64s, _Bytes]], int, str]: ...
    def close(self) -> None: ...

class LmdbReader(RowReader):
    def __init__(self, directory: str, generation: str, complete: bool = True) -> None: ...
    def size(self, table: int) -> int: ...
    def scan(
        self, table: int, after: int | None, count: int
    ) -> tuple[_Int64s, _Bytes, _Uint64s]: ...
    def digests(self, table: int) -> _Uint64s: ...

class LmdbBlocks:
    def __init__(self, directory: str, generation: str, name: str) -> None: ...
    def put(self, numbers: list[int], blocks: list[builtins.bytes]) -> None: ...
    def get(self, number: int) -> builtins.bytes | None: ...
    def close(self) -> None: ...

class LmdbWriter:
    def __init__(self, directory: str, generation: str, table: str, row_bytes: int) -> None: ...
    def write(self, keys: _Int64s, rows: _Bytes, version: int) -> None: ...
    def put(self, keys: _Int64s, rows: _Bytes, versions: _Uint64s) -> int: ...
    def close(self) -> None: ...

class LmdbRecords:
    def __init__(self, directory: str, create: bool, patience_seconds: float = 30.0) -> None: ...
    def get(self, name: str) -> str | None: ...
    def swap_all(self, changes: Sequence[tuple[str, str | None, str | None]]) -> bool: ...
    def names(self, prefix: str) -> list[str]: ...
    def next_number(self) -> int: ...
    def close(self) -> None: ...

def drop_lmdb_table(directory: str, generation: str, table: str) -> None: ...

# Stored rows: docs/formats.md. B bytes of a stored row, V shards, P pages in each. number: of the
# generation; table: its number in the generation.
def encode_rows(row_type: str, weights: _Floats) -> _Bytes: ...
def store_names(shards: int, number: int) -> tuple[list[builtins.bytes], list[int]]:
    """Returns the names of the markers, and the slots, of all shards."""

def page_names(
    shards: int,
    number: int,
    table: int,
    pages: int,
    shard: int,
    first: int = 0,
    count: int | None = None,
) -> list[builtins.bytes]: ...
def page_of_keys(keys: _Int64s, shards: int, pages: int) -> tuple[_Int32s, _Int64s]: ...
def pack_pages(
    keys: _Int64s,
    rows: _Bytes,
    version: int,
    shards: int,
    number: int,
    table: int,
    pages: int,
    only: list[int] | None = None,
) -> list[tuple[int, int, builtins.bytes]]:
    """Returns (shard, commands, payload) of each shard that has rows, ascending.

    A payload is whole `MSET page value...` commands of the protocol, for
    `connection.send_packed_command([payload])`; Redis answers with so many `+OK`. A command has up
    to 256 pages, and up to 256 KiB unless one page has more.
    """

def record_digests(keys: _Int64s, rows: _Bytes, shards: int) -> npt.NDArray[np.uint64]:
    """Returns uint64 [V, 3]: rows and the two sums of their digest, of each shard."""

def page_digest(
    values: list[builtins.bytes | None],
    row_bytes: int,
    shards: int,
    number: int,
    table: int,
    pages: int,
    shard: int,
    first_page: int = 0,
) -> npt.NDArray[np.uint64]:
    """Returns uint64 [3] of pages of one shard, numbers `first_page` on, as MGET answers them.

    Tombstones do not count; None is an absent page.

    Raises:
        DataLossError: a page is no whole number of records, or has a record that belongs elsewhere
            or is there twice.
    """

# Options: store, generation, topology, username, password (str), database, timeout_millis,
# cache_rows, cache_bytes (int), default_on_failure, cache_lru (bool); see hr_serving_options.
def attach_serving(manifest_path: str, **options: str | int | bool) -> None: ...
def check_serving_gpu(gpu: int) -> None: ...
def detach_serving(manifest_path: str) -> None: ...
def show_attached(
    manifest_path: str, shown: int, layers: list[tuple[str, int]], fence: int = 0
) -> None: ...
def set_attached_topology(manifest_path: str, topology: str) -> None: ...
def create_mpi_ranks(name: str, library: str, timeout_seconds: float) -> None: ...
def create_thread_ranks(names: Sequence[str], timeout_seconds: float) -> None: ...
def drop_ranks(name: str) -> None: ...

class Ranks:
    """A rank of a group, and its collectives; `name` is that of `create_*_ranks`.

    `all_gather`: what each rank gave, of any length. `broadcast`: what rank 0 gave. `all_reduce_*`:
    in place. `counts`: `calls`, `bytes_sent`, `bytes_received`, `nanoseconds` by stage.
    `set_device`: how they exchange what is in memory of GPUs: 0 auto, 1 NCCL, 2 by way of the
    host's memory. `device`: how they do it; "" before they first do.
    """

    def __init__(self, name: str) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def set_device(self, wanted: int, nccl_library: str, timeout_seconds: float) -> None: ...
    @property
    def device(self) -> str: ...
    def all_gather(self, data: _Bytes, what: str) -> list[_Bytes]: ...
    def broadcast(self, data: bytes, what: str) -> bytes: ...
    def all_reduce_floats(self, values: _Floats, what: str) -> None: ...
    def all_reduce_doubles(self, values: npt.NDArray[np.float64], what: str) -> None: ...
    def barrier(self, what: str) -> None: ...
    def fail(self, code: int, message: str) -> None: ...
    def counts(self) -> dict[str, dict[str, int]]: ...
