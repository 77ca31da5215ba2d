"""The contents of a run, checkpoint, version directory or store, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotrow.line_layout import LineLayout
from hotrow.manifest import read_manifest
from hotrow.sealed_directory import read_sealed
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.readers import users
from hotrow.store.record_format import UNREADABLE, Unreadable
from hotrow.store.row_store import Records, RowStore
from hotrow.store.spec import Generation, State, row_bytes
from hotrow.store.statistics import StoreStatistics
from hotrow.table_statistics import TableStatistics
from hotrow.version_layout import FILE_NAME, ROWS


@dataclass(frozen=True)
class TrainedTable:
    """Values of a table that only a checkpoint has.

    Attributes:
        step: the table's step.
        layout: layout of its lines.
        disk_bytes: size of all its files.
        optimizer: class name of its optimizer.
        totals: counts since the run began: lookups, admitted and expired keys.
        statistics: statistics of its rows.
    """

    step: int
    layout: LineLayout
    disk_bytes: int
    optimizer: str
    totals: Mapping[str, Any]
    statistics: TableStatistics

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON types."""
        layout = self.layout
        return {
            "step": self.step,
            "weights_type": layout.weights_type,
            "state_type": layout.state_type,
            "state_vectors": layout.vectors,
            "state_scalars": layout.scalars,
            "disk_bytes": self.disk_bytes,
            "optimizer": self.optimizer,
            "totals": self.totals,
            **self.statistics.as_dict(),
        }


@dataclass(frozen=True)
class InspectedTable:
    """A table.

    Attributes:
        name: its name, after the generation's name if several are listed.
        rows: number of rows.
        dim: weights of a row, D; None if unknown.
        line_bytes: bytes of a row with its optimizer state; None if unknown.
        digest: digest of the rows, 32 hex digits; None if it was not computed.
        trained: values that only a checkpoint has.
    """

    name: str
    rows: int
    dim: int | None = None
    line_bytes: int | None = None
    digest: str | None = None
    trained: TrainedTable | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes of all rows, without keys and index."""
        return None if self.line_bytes is None else self.rows * self.line_bytes

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON types."""
        return {
            "name": self.name,
            "rows": self.rows,
            "dim": self.dim,
            "line_bytes": self.line_bytes,
            "bytes": self.bytes,
            "digest": self.digest,
            **(self.trained.as_dict() if self.trained else {}),
        }


@dataclass(frozen=True)
class Inspection:
    """The contents of a path or store.

    Attributes:
        kind: "run", "checkpoint", "version", "model", "base" or "store".
        place: the path or URL.
        facts: other values, by name.
        tables: the tables.
    """

    kind: str
    place: str
    facts: dict[str, Any]
    tables: tuple[InspectedTable, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON types."""
        tables = [table.as_dict() for table in self.tables]
        return {"kind": self.kind, "place": self.place, **self.facts, "tables": tables}


def inspect_store(url: str, access: StoreAccess | None = None) -> Inspection:
    """Lists the tables of a store's generations.

    Raises:
        NotFoundError, UnavailableError: the store cannot be opened.
        InvalidArgumentError: not the URL of a store.
    """
    store = open_store(url, access, option="store")
    generations = Generations(store.records)
    try:
        found, unreadable = generations.listed()
        models, bad_models = generations.models()
        live = {record.live for record in models.values()}
        unreadable = [*unreadable, *bad_models]
        cuts = {g.generation: _cuts_of(store.records, g, unreadable) for g in found}
        users_of = {g.generation: users(store.records, g.generation) for g in found}
        statistics = {
            g.generation: store.statistics(g) for g in found if g.state is not State.DELETING
        }
    finally:
        store.close()
    listed = [
        {
            "generation": g.generation,
            "model": g.model,
            "version": g.version,
            "state": str(g.state),
            "live": g.generation in live,
            "rows": sum(t.rows for t in g.tables),
            "users": len(users_of[g.generation]),
            "cuts": [_cut_facts(cut) for cut in cuts[g.generation]],
            **_memory(statistics.get(g.generation)),
        }
        for g in found
    ]
    tables = tuple(
        InspectedTable(f"{g.generation}/{t.name}", t.rows, t.dim, t.row_bytes, t.digest or None)
        for g in found
        for t in g.tables
    )
    facts = {"generations": listed, "unreadable": [asdict(record) for record in unreadable]}
    return Inspection("store", url, facts, tables)


def _cuts_of(
    records: Records, generation: Generation, unreadable: list[Unreadable]
) -> list[CutRecord]:
    """Returns the cuts of a generation; none, and a line in `unreadable`, if one is damaged."""
    try:
        return cuts_of(records, generation)
    except UNREADABLE as err:
        unreadable.append(Unreadable(f"cut/{generation.generation}", str(err), generation.model))
        return []


def _cut_facts(cut: CutRecord) -> dict[str, Any]:
    return {
        "version": f"{cut.version:016x}",
        "step": cut.step,
        "rows": cut.rows,
        "removed": cut.removed,
        "folded": cut.folded,
    }


def _memory(statistics: StoreStatistics | None) -> dict[str, Any]:
    """Returns the memory of a generation, and the distribution of its shards over the nodes."""
    if statistics is None:
        return {"bytes_a_row": {}, "nodes": []}
    sampled = {t.name: t.bytes_a_row for t in statistics.tables if t.bytes_a_row is not None}
    return {
        "bytes_a_row": {name: round(value, 1) for name, value in sampled.items()},
        "nodes": [asdict(node) for node in statistics.nodes],
    }


def inspect_version(directory: Path, access: StoreAccess | None = None) -> Inspection:
    """Checks the files of a version and reads the rows of its store.

    Raises:
        NotFoundError: the manifest or the store does not exist.
        DataLossError: a file differs from the written one.
    """
    read_sealed(directory)
    manifest = read_manifest(directory / "assets" / FILE_NAME)
    tables = tuple(
        InspectedTable(t.name, t.rows, t.dim, row_bytes(t.dtype, t.dim), t.digest)
        for t in manifest.tables
    )
    facts = manifest.model_dump(include={"model", "version", "step", "generation", "store"})
    url = manifest.store
    if url == f"file:{ROWS}":
        url = f"file://{directory.resolve() / ROWS}"
    store = open_store(url, access)
    try:
        generation = Generations(store.records).get(manifest.generation)
        cuts = cuts_of(store.records, generation)
        if cuts:
            # Newer rows have replaced the exported ones.
            facts["cuts"] = [_cut_facts(cut) for cut in cuts]
        else:
            facts["rows_match"] = _digests_match(store, generation, tables)
    finally:
        store.close()
    return Inspection("version", str(directory), facts, tables)


def _digests_match(
    store: RowStore, generation: Generation, tables: tuple[InspectedTable, ...]
) -> bool:
    """Reads every row of a generation and compares the digests with those of a manifest."""
    for number, table in enumerate(generation.tables):
        sums = store.digests(generation, number).sum(axis=0, dtype=np.uint64)
        rows, low, high = (int(total) for total in sums)
        wanted = next((t for t in tables if t.name == table.name), None)
        if wanted is None or f"{low:016x}{high:016x}" != wanted.digest or rows != wanted.rows:
            return False
    return True
