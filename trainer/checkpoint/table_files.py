"""Rows of a table as safetensors files of bounded size.

A piece holds `keys` int64 [N], `clocks`, `counts` and `places` uint32 [N], and `lines` uint8
[N, L]: the row lines as they lie in memory, L bytes each. See `docs/formats.md`.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError
from hotrow.hashed_file import FileFacts
from hotrow.trainer.checkpoint.array_file import read_arrays, write_arrays

PIECE_BYTES = 64 << 20
"""Bytes of a file, at most; 256 MiB is the format's bound, so that writing and reading stream."""

_LEAST_PIECES = 64  # of a table, so that memory for a piece is small beside it
_LEAST_PIECE_BYTES = 4 << 20

ROW_OVERHEAD_BYTES = 8 + 3 * 4
"""Bytes that a row takes in a file beside its line: key, clock, count, place."""

_READ_BYTES = 2 << 20


class RowReader(Protocol):
    """A source of rows, such as a snapshot of a table."""

    def read_into(
        self,
        keys: npt.NDArray[np.int64],
        lines: npt.NDArray[np.uint8],
        clocks: npt.NDArray[np.uint32],
        counts: npt.NDArray[np.uint32],
        places: npt.NDArray[np.uint32],
    ) -> int:
        """Writes up to N rows to arrays [N, ...] and returns how many; 0 at the end."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a table, in the order of a file's arrays.

    Attributes:
        keys: int64 [N], distinct.
        lines: uint8 [N, L].
        clocks: uint32 [N], the table's step when the row was last updated or created.
        counts: uint32 [N], lookups in the steps that updated it.
        places: uint32 [N], the row's slot inside its partition.
    """

    keys: npt.NDArray[np.int64]
    lines: npt.NDArray[np.uint8]
    clocks: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]
    places: npt.NDArray[np.uint32]


def stem_of(table: str, rank: int | None = None) -> str:
    """Returns the common prefix of a table's file names; `rank`: of one rank's part.

    The character before the rank cannot occur in a table's name: it would be encoded.
    """
    name = quote(table, safe="")
    return name if rank is None else f"{name}@{rank}"


def rows_name(stem: str, number: int) -> str:
    """Returns the file name of a table's piece, below the directory of all tables."""
    return f"{stem}-{number:05d}.safetensors"


def removed_name(stem: str) -> str:
    """Returns the name of the file with the keys that an increment removes."""
    return f"{stem}-removed.safetensors"


def state_name(stem: str) -> str:
    """Returns the name of the file with all of a table's state besides rows."""
    return f"{stem}.state"


class RowFiles:
    """Writes the rows of a table as pieces, some rows at a time.

    Memory besides the table: one piece, which is 1/64 of the rows, at least 4 MiB and at most
    `PIECE_BYTES`.

    Attributes:
        stem: prefix of the files' names.
        files: the facts of each file written so far, by name.
        rows: the number of rows read so far.
    """

    def __init__(
        self, rows: RowReader, stem: str, line_bytes: int, at_most: int, directory: Path
    ) -> None:
        """Stores its arguments; writes nothing yet.

        Args:
            rows: read to its end.
            stem: from `stem_of`.
            line_bytes: L.
            at_most: an upper bound of the number of rows.
            directory: where to write the files.
        """
        self.files: dict[str, FileFacts] = {}
        self.rows = 0
        self._reader = rows
        self.stem = stem
        self._line_bytes = line_bytes
        self._directory = directory
        row_bytes = line_bytes + ROW_OVERHEAD_BYTES
        bound = max(at_most * row_bytes // _LEAST_PIECES, _LEAST_PIECE_BYTES)
        self._room = max(1, min(at_most, min(bound, PIECE_BYTES) // row_bytes))
        self._most_read = max(1, _READ_BYTES // row_bytes)
        self._piece: Rows | None = None
        self._held = 0

    def write_some(self) -> bool:
        """Reads some rows and writes a piece that is full; at the end, the last one.

        Returns:
            Whether there may be more rows.

        Raises:
            OSError: the disk is full or refuses.
        """
        if self._piece is None:
            self._piece = _room_for(self._room, self._line_bytes)
        piece, end = self._piece, min(self._held + self._most_read, self._room)
        part = slice(self._held, end)
        count = self._reader.read_into(
            piece.keys[part],
            piece.lines[part],
            piece.clocks[part],
            piece.counts[part],
            piece.places[part],
        )
        if not count:
            self.flush()
            return False
        self._held += count
        self.rows += count
        if self._held == self._room:
            self._write()
        return True

    def flush(self) -> None:
        """Writes the rows that were read and frees the memory of a piece.

        Raises:
            OSError: the disk is full or refuses.
        """
        if self._held:
            self._write()
        self._piece = None

    def _write(self) -> None:
        assert self._piece is not None
        name = rows_name(self.stem, len(self.files))
        arrays = {field: array[: self._held] for field, array in vars(self._piece).items()}
        self.files[name] = write_arrays(self._directory / name, arrays)
        self._held = 0


def _room_for(rows: int, line_bytes: int) -> Rows:
    """Returns uninitialised rows in memory that returns to the system as soon as it is freed."""
    memory = mmap.mmap(-1, rows * (line_bytes + ROW_OVERHEAD_BYTES))
    start = 0

    def array(dtype: Any, *shape: int) -> npt.NDArray[Any]:
        nonlocal start
        found: npt.NDArray[Any] = np.ndarray(shape, dtype, memory, start)
        start += found.nbytes
        return found

    return Rows(
        keys=array(np.int64, rows),
        clocks=array(np.uint32, rows),
        counts=array(np.uint32, rows),
        places=array(np.uint32, rows),
        lines=array(np.uint8, rows, line_bytes),
    )


def read_rows(path: Path, line_bytes: int) -> Rows:
    """Returns the rows of a piece.

    Raises:
        DataLossError: the file is missing, or its arrays are not a piece of a table with lines of
            `line_bytes`.
    """
    arrays = read_arrays(path)
    size = len(arrays["keys"]) if "keys" in arrays and arrays["keys"].ndim == 1 else -1
    expected = {
        "keys": (np.dtype(np.int64), (size,)),
        "lines": (np.dtype(np.uint8), (size, line_bytes)),
        **{name: (np.dtype(np.uint32), (size,)) for name in ("clocks", "counts", "places")},
    }
    if {name: (array.dtype, array.shape) for name, array in arrays.items()} != expected:
        raise DataLossError(f"{path} does not hold rows with lines of {line_bytes} bytes")
    return Rows(**arrays)


def write_removed(keys: npt.NDArray[np.int64], path: Path) -> FileFacts:
    """Writes the keys int64 [N] of rows that were removed since the previous checkpoint."""
    return write_arrays(path, {"keys": np.ascontiguousarray(keys)})


def read_removed(path: Path) -> npt.NDArray[np.int64]:
    """Returns the keys that `write_removed` wrote.

    Raises:
        DataLossError: the file is missing or holds something else.
    """
    arrays = read_arrays(path)
    keys = arrays.get("keys")
    if len(arrays) != 1 or keys is None or keys.dtype != np.int64 or keys.ndim != 1:
        raise DataLossError(f"{path} does not hold keys")
    return keys
