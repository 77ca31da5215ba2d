"""The embedded store: `file:///dir`, rows in LMDB, for several processes of one machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotrow import _native
from hotrow.errors import NotFoundError
from hotrow.store.record_format import damaged, read_json
from hotrow.store.row_store import (
    BLOCK_BYTES,
    Announcements,
    Change,
    Keys,
    Place,
    Rows,
    ShardDigests,
    States,
    Versions,
)
from hotrow.store.spec import Generation

# A watermark on each shard: all rows of a generation were written.
_WHOLE = "whole/"


class LmdbRecords:
    """Control records in the database `hotrow`; see `Records`."""

    def __init__(self, directory: str, *, create: bool, patience_seconds: float) -> None:
        self._native = _native.LmdbRecords(directory, create, patience_seconds)

    def get(self, name: str) -> str | None:
        """Returns the text of a record, or None."""
        return self._native.get(name)

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes or removes a record if it is as expected; returns whether it was."""
        return self._native.swap_all([(name, expected, text)])

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Does the same with several records: all of them, or none."""
        return self._native.swap_all(changes)

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""
        return self._native.names(prefix)

    def texts(self, prefix: str) -> dict[str, str]:
        """Returns the texts of the records whose names begin with `prefix`, by name, sorted."""
        found = ((name, self.get(name)) for name in self.names(prefix))
        return {name: text for name, text in found if text is not None}

    def next_number(self) -> int:
        """Returns a number that was never returned before, from 1."""
        return self._native.next_number()

    def now_ms(self) -> int:
        """Returns the machine's clock, in milliseconds."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Closes the files."""
        self._native.close()


class LmdbStore:
    """Generations in a directory; see `RowStore`.

    Args:
        directory: the store's directory.
        create: create the store if it does not exist.
        patience_seconds: how long a write waits for another process that writes; of several stores
            that a process opens in one directory, the last one sets it.

    Raises:
        NotFoundError: the store does not exist.
        UnavailableError, DataLossError: it cannot be opened.
    """

    def __init__(
        self, directory: str | Path, *, create: bool = False, patience_seconds: float = 30.0
    ) -> None:
        self._directory = str(directory)
        self.url = f"file://{self._directory}"
        self.records = LmdbRecords(
            self._directory, create=create, patience_seconds=patience_seconds
        )
        self._writers: dict[tuple[str, int], _native.LmdbWriter] = {}

    def close(self) -> None:
        """Closes the files."""
        self._close_writers()
        self.records.close()

    def topology(self) -> dict[str, Any]:
        """Returns no nodes."""
        return {"cluster": False, "nodes": []}

    def statistics(self, generation: Generation) -> None:
        """Returns None: LMDB has no such statistics."""

    def check_safe_for_rows(self) -> None:
        """Does nothing: LMDB evicts no rows."""

    def pages_of(self, record_bytes: int, rows: int, shards: int) -> int:
        """Returns 0: there are no pages."""
        del record_bytes, rows, shards
        return 0

    def begin(self, generation: Generation) -> None:
        """Creates the tables of a generation, so that empty ones can be read, too."""
        for table in range(len(generation.tables)):
            self._writer(generation, table)

    def write(
        self,
        generation: Generation,
        table: int,
        keys: Keys,
        rows: Rows,
        shards: Collection[int] | None = None,
    ) -> None:
        """Writes rows with the version of their generation; see `RowStore`."""
        if shards is not None:
            shard_of, _ = _native.page_of_keys(keys, generation.shards, 1)
            wanted = np.isin(shard_of, list(shards))
            keys, rows = np.ascontiguousarray(keys[wanted]), np.ascontiguousarray(rows[wanted])
        self._writer(generation, table).write(keys, rows, generation.row_version)

    def put(
        self, generation: Generation, table: int, keys: Keys, rows: Rows, versions: Versions
    ) -> int:
        """Writes rows over older ones; see `RowStore`."""
        if self.missing_markers(generation):
            raise NotFoundError(
                f"store {self.url}: generation {generation.generation} is not whole; export again"
            )
        return self._writer(generation, table).put(keys, rows, versions)

    def digests(
        self, generation: Generation, table: int, shards: Collection[int] | None = None
    ) -> ShardDigests:
        """Returns uint64 [V, 3]: digests of each shard; see `RowStore`."""
        reader = self._reader(generation)
        digests = reader.digests(table)
        reader.close()
        if shards is not None:
            left_out = np.setdiff1d(np.arange(generation.shards), list(shards))
            digests[left_out] = 0
        return digests

    def set_markers(self, generation: Generation, digests: list[ShardDigests]) -> None:
        """Marks the generation as whole."""
        del digests
        name = _WHOLE + generation.generation
        marks = [generation.row_version] * generation.shards
        self.records.swap(name, self.records.get(name), json.dumps(marks))

    def missing_markers(self, generation: Generation) -> list[int]:
        """Returns no shard, or all shards."""
        if self.records.get(_WHOLE + generation.generation) is not None:
            return []
        return list(range(generation.shards))

    def stage(self, generation: Generation, version: int, blocks: Mapping[Place, bytes]) -> None:
        """Writes blocks of a cut; see `RowStore`."""
        staged = self._blocks(generation, version)
        staged.put([_number_of(place) for place in blocks], list(blocks.values()))
        staged.close()

    def staged(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        block_bytes: int = BLOCK_BYTES,
    ) -> list[bytes | None]:
        """Returns blocks of a cut; see `RowStore`."""
        del block_bytes
        staged = self._blocks(generation, version)
        found = [staged.get(_number_of(place)) or None for place in places]
        staged.close()
        return found

    def unstage(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        *,
        others_stay: bool = False,
    ) -> None:
        """Deletes blocks of a cut; see `RowStore`."""
        if others_stay:
            # Empty ones take no pages, and go with the last ones.
            self.stage(generation, version, dict.fromkeys(places, b""))
            return
        _native.drop_lmdb_table(self._directory, generation.generation, _cut_name(version))

    def await_replicas(self, generation: Generation) -> None:
        """Does nothing: LMDB has no copies."""
        del generation

    def announce(self, model: str) -> None:
        """Does nothing: a look at a file costs less than a message."""

    def announcements(self, model: str, wake: Callable[[], None]) -> Announcements | None:
        """Returns None: there are no announcements."""
        return None

    def watermarks(self, generation: Generation) -> Versions:
        """Returns uint64 [V]; see `RowStore`."""
        name = _WHOLE + generation.generation
        text = self.records.get(name)
        marks = [0] * generation.shards if text is None else _marks(text, name, generation)
        return np.array(marks, np.uint64)

    def set_watermarks(
        self, generation: Generation, version: int, shards: Sequence[int], least: int = 0
    ) -> None:
        """Records that a cut was folded into shards; see `RowStore`."""
        name = _WHOLE + generation.generation
        while (text := self.records.get(name)) is not None:
            marks = _marks(text, name, generation)
            for shard in shards:
                if marks[shard] >= least:
                    marks[shard] = max(marks[shard], version)
            if self.records.swap(name, text, json.dumps(marks)):
                return

    def delete_rows(
        self, generation: Generation, report: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Deletes rows and marker, a table at a time; see `RowStore`."""
        self._close_writers()
        name = _WHOLE + generation.generation
        self.records.swap(name, self.records.get(name), None)
        for number, table in enumerate(generation.tables):
            _native.drop_lmdb_table(self._directory, generation.generation, table.name)
            report((number + 1) * generation.shards, len(generation.tables) * generation.shards)

    def read(self, generation: Generation, table: int, keys: Keys) -> tuple[Rows, Versions, States]:
        """Returns rows, versions and states of keys; see `RowStore`."""
        reader = self._reader(generation)
        ((rows, versions, states),), _, _ = reader.read([(table, keys)])
        reader.close()
        return rows, versions, states

    def _blocks(self, generation: Generation, version: int) -> _native.LmdbBlocks:
        return _native.LmdbBlocks(self._directory, generation.generation, _cut_name(version))

    def _reader(self, generation: Generation) -> _native.LmdbReader:
        return _native.LmdbReader(self._directory, generation.generation, complete=False)

    def _writer(self, generation: Generation, table: int) -> _native.LmdbWriter:
        place = (generation.generation, table)
        if place not in self._writers:
            self._writers[place] = _native.LmdbWriter(
                self._directory,
                generation.generation,
                generation.tables[table].name,
                generation.tables[table].row_bytes,
            )
        return self._writers[place]

    def _close_writers(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def _marks(text: str, name: str, generation: Generation) -> list[int]:
    """Returns the watermark of each shard."""
    marks = read_json(text, name)
    if not isinstance(marks, list) or len(marks) != generation.shards:
        raise damaged(name, f"it is no list of {generation.shards} watermarks")
    return marks


def _cut_name(version: int) -> str:
    """Returns the name of the table of a cut's blocks; tables of models have no such names."""
    return f"\x01cut-{version:016x}"


def _number_of(place: Place) -> int:
    shard, number = place
    return shard << 32 | number
