"""The control record of a generation (docs/formats.md, "Control records")."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import pydantic

from hotrow.errors import InvalidArgumentError
from hotrow.spec.tables import DTYPES
from hotrow.store.record_format import StoredRecord

STORED_TYPES = (*DTYPES, "int8")
"""How the weights of a row may be stored."""

RowType = Literal["float32", "bfloat16", "float16", "int8"]

_WEIGHT_BYTES: dict[RowType, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
_SCALE_BYTES = 4

DEFAULT_SHARDS = 256
"""Virtual shards of a generation, V, unless another number is asked for."""

MOST_SHARDS = 4096
MOST_TABLES = 4096

RECORD_HEAD_BYTES = 16
"""Bytes of key and version before a stored row."""

EPOCH_BITS = 23
SEQ_BITS = 40

FIRST_MS = 1_767_225_600_000
"""2026-01-01 in Unix time; epochs, seqs and numbers of generations count from here."""
_HOUR_MS = 3_600_000


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")


class StoredTable(_Part):
    """A table of a generation.

    Attributes:
        name: the table's name in the graph and in the manifest.
        dim: weights of a row, D.
        row_type: how weights are stored.
        default_value: value of every weight in the row that an unknown key reads.
        rows: number of rows.
        pages: pages in each virtual shard, P; 0 in a store without pages.
        planned_rows: rows that a growing table is laid out for; 0: for `rows`.
        digest: digest of all its records: 32 hex digits; "" while it is being written.
    """

    name: str
    dim: int
    row_type: RowType
    default_value: float
    rows: int
    pages: int = 0
    planned_rows: int = 0
    digest: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row, B."""
        return row_bytes(self.row_type, self.dim)


class Origin(_Part):
    """The training state that rows show, so that a later export can add the changes since.

    Attributes:
        lineage: id of the last start of training behind it; "": unknown.
        clocks: clocks of the tables, in the order of their numbers; rows that changed later have
            larger ones.
        top: the rows are at most this many of each table, the most frequent ones; None: all.
    """

    lineage: str
    clocks: tuple[int, ...]
    top: int | None = None


class State(StrEnum):
    """The state of a generation in its life cycle."""

    WRITING = "writing"
    COMPLETE = "complete"
    DELETING = "deleting"


class Generation(StoredRecord):
    """The control record of a generation.

    Attributes:
        generation: its name, 32 hex digits. number: its short number in the store.
        model, version, step: the model, version and training step of its rows.
        source: text that identifies the exported rows; an export of the same source resumes it.
        shards: virtual shards, V.
        schema_hash: that of the manifest.
        created_ms: time of its creation by the store's clock.
        epoch, seq: of the writer of its rows as exported (`next_token`).
        tables: in the order of their numbers.
        origin: origin of its rows as exported; None: an older version of Hotrow wrote it.
        unused: whether a deletion has asked and found no reader; rows may be gone from then on.
    """

    generation: str
    number: int
    model: str
    version: int
    step: int
    source: str
    state: State
    shards: int = DEFAULT_SHARDS
    schema_hash: str
    created_ms: int
    epoch: int
    seq: int
    tables: tuple[StoredTable, ...]
    origin: Origin | None = None
    unused: bool = False

    @property
    def row_version(self) -> int:
        """The version of its rows as exported: uint64."""
        return row_version(self.epoch, self.seq)


def check_shards(option: str, shards: int) -> None:
    """Checks a number of virtual shards.

    Raises:
        InvalidArgumentError: the number is not a power of two from 1 to 4096.
    """
    if not 1 <= shards <= MOST_SHARDS or shards & (shards - 1):
        raise InvalidArgumentError(
            f"{option} {shards}: must be a power of two from 1 to {MOST_SHARDS}"
        )


def row_bytes(row_type: RowType, dim: int) -> int:
    """Returns the bytes of a stored row of `dim` weights, B."""
    return dim * _WEIGHT_BYTES[row_type] + (_SCALE_BYTES if row_type == "int8" else 0)


def next_token(epoch: int, seq: int, now_ms: int, above: int = 0) -> tuple[int, int]:
    """Returns epoch and seq of a writer that begins now; the pair is greater than any before it.

    The epoch is at least the hours since 2026, the seq at least the milliseconds. A store that was
    restored from an earlier second has forgotten which pairs it gave since then; time has not.

    Args:
        epoch: the last epoch that the store remembers.
        seq: the last seq that it remembers.
        now_ms: Unix time.
        above: a version that the result has to exceed, too.
    """
    since_ms = now_ms - FIRST_MS
    mask = (1 << SEQ_BITS) - 1
    last_epoch, last_seq = max((epoch, seq), (above >> SEQ_BITS, above & mask))
    return max(last_epoch, since_ms // _HOUR_MS), max(last_seq + 1, since_ms)


def row_version(epoch: int, seq: int) -> int:
    """Returns the version of a row that the cut (epoch, seq) wrote.

    Raises:
        OverflowError: `epoch` or `seq` has too many bits.
    """
    if not 0 <= epoch < 1 << EPOCH_BITS or not 0 <= seq < 1 << SEQ_BITS:
        raise OverflowError(f"epoch {epoch}, seq {seq}: at most 23 and 40 bits")
    return epoch << SEQ_BITS | seq
