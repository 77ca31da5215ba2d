"""What a run, a version directory or a store holds, without TensorFlow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hotrow import _native
from hotrow.manifest import FILE_NAME, read_manifest
from hotrow.sealed_directory import read_sealed
from hotrow.store_url import check_store_url

FLOAT_BYTES = 4


@dataclass(frozen=True)
class InspectedTable:
    """A table.

    Attributes:
        name: with its generation in front where several are listed.
        rows: how many.
        dim: weights of a row, D; None where the place does not tell.
        line_bytes: bytes of a row with its optimizer state; None where the place does not tell.
        digest: of the rows, 32 hex digits; None where it was not computed.
    """

    name: str
    rows: int
    dim: int | None = None
    line_bytes: int | None = None
    digest: str | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes of all rows, without keys and index."""
        return None if self.line_bytes is None else self.rows * self.line_bytes


@dataclass(frozen=True)
class Inspection:
    """What a place holds.

    Attributes:
        kind: "run", "version" or "store".
        place: the path or URL.
        facts: what else there is to say, by name.
        tables: the tables.
    """

    kind: str
    place: str
    facts: dict[str, Any]
    tables: tuple[InspectedTable, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON types."""
        tables = [{**asdict(table), "bytes": table.bytes} for table in self.tables]
        return {"kind": self.kind, "place": self.place, **self.facts, "tables": tables}


def inspect_store(url: str) -> Inspection:
    """Lists the tables of a `file://` store.

    Raises:
        NotFoundError, UnavailableError: it cannot be opened.
        UnimplementedError, InvalidArgumentError: another kind of store.
    """
    check_store_url("store", url)
    entries = _native.list_store(url.removeprefix("file://"))
    tables = tuple(
        InspectedTable(f"{generation}/{table}", rows) for generation, table, rows in entries
    )
    return Inspection("store", url, {"generations": len({e[0] for e in entries})}, tables)


def inspect_version(directory: Path) -> Inspection:
    """Checks the files of a version and reads the rows of its store.

    Raises:
        NotFoundError: no manifest, or no store.
        DataLossError: a file is not the one that was written.
    """
    read_sealed(directory)
    manifest = read_manifest(directory / "assets" / FILE_NAME)
    tables = tuple(
        InspectedTable(t.name, t.rows, t.dim, t.dim * FLOAT_BYTES, t.digest)
        for t in manifest.tables
    )
    facts = manifest.model_dump(include={"model", "version", "step", "generation", "store"})
    facts["rows_match"] = _digests_match(directory, manifest.store, manifest.generation, tables)
    return Inspection("version", str(directory), facts, tables)


def _digests_match(
    directory: Path, store: str, generation: str, tables: tuple[InspectedTable, ...]
) -> bool:
    """Reads every row of the version's store and compares the digests with the manifest."""
    if store.startswith("file://"):
        folder = store.removeprefix("file://")
    else:
        folder = str(directory.resolve() / store.removeprefix("file:"))
    for table in tables:
        assert table.dim is not None
        reader = _native.StoreReader(folder, generation, table.name, table.dim)
        if reader.digest() != table.digest:
            return False
    return True
