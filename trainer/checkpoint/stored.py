"""A checkpoint on disk: its manifest, and the chain of checkpoints that it builds on."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.sealed_directory import MANIFEST, check_files, read_manifest, seal_of
from hotrow.trainer.checkpoint.parts import files_of

FORMAT = 2
"""Of one process."""
FORMAT_OF_RANKS = 3
"""Of several ranks: the rows of a table are in `parts`."""
FULL, INCREMENT = "full", "increment"
MODEL, OPTIMIZER, METRICS = "model.safetensors", "optimizer.safetensors", "metrics.safetensors"
RANDOM, TABLES = "random.json", "tables"

_NAME = re.compile(r"step-\d{8,}")

_Count = Annotated[int, pydantic.Field(ge=0, lt=2**63)]
_Leg = Annotated[list[_Count], pydantic.Field(min_length=2, max_length=2)]


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="allow")


class _Layout(_Part):
    width: _Count
    line_bytes: _Count


class _Files(_Part):
    files: list[str]
    removed: str | None
    state: str
    rows: _Count
    removed_rows: _Count
    layout: _Layout
    size: _Count
    digest: str | None


class _Table(_Part):
    step: _Count
    layout: _Layout
    optimizer: str
    shards: Annotated[int, pydantic.Field(ge=1)]
    size: _Count
    rows: _Count
    removed_rows: _Count
    digest: str | None


class _TableOfOne(_Table, _Files):
    """A table's entry in format 2."""


class _PartOfRank(_Files):
    rank: _Count
    columns: Annotated[list[_Count], pydantic.Field(min_length=2, max_length=2)]


class _TableOfRanks(_Table):
    """A table's entry in format 3."""

    sharding: Literal["row", "column", "row_broadcast", "table", "replicated"]
    parts: Annotated[list[_PartOfRank], pydantic.Field(min_length=1)]


class _Position(_Part):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    step: _Count
    epoch: _Count
    batch: _Count
    legs: list[_Leg] = []
    online: dict[str, Any] | None = None


class _Start(_Part):
    id: str
    step: _Count


class _Facts(_Part):
    """The values that a manifest must hold besides its files; checked here for all readers."""

    kind: Literal["full", "increment"]
    position: _Position
    lineage: list[_Start] = []  # older checkpoints have none
    environment: dict[str, Any]
    parents: list[str]
    parent_seals: list[str]
    tables: dict[str, _TableOfOne]


class _FactsOfRanks(_Facts):
    tables: dict[str, _TableOfRanks]  # type: ignore[assignment]


_MODELS: dict[int, type[_Facts]] = {FORMAT: _Facts, FORMAT_OF_RANKS: _FactsOfRanks}


def name_of(step: int) -> str:
    """Returns the name of the checkpoint of a step."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Returns the step of a checkpoint's name; None: the name is not one of a checkpoint."""
    return int(name.removeprefix("step-")) if _NAME.fullmatch(name) else None


def newest_step(run_dir: Path) -> int | None:
    """Returns the step of a run's newest checkpoint that looks whole; None: there is none.

    It compares the sizes of files, not their checksums.
    """
    steps = (step_of(path.name) for path in (run_dir / "checkpoints").glob("step-*"))
    for step in sorted((step for step in steps if step is not None), reverse=True):
        with contextlib.suppress(DataLossError, FailedPreconditionError):
            open_chain(run_dir / "checkpoints" / name_of(step), thorough=False)
            return step
    return None


@dataclass(frozen=True)
class StoredCheckpoint:
    """One checkpoint directory of a chain.

    Attributes:
        path: the directory.
        facts: its manifest.
        seal: the manifest's checksum, which covers everything in the directory.
    """

    path: Path
    facts: dict[str, Any]
    seal: str

    @property
    def parents(self) -> list[str]:
        """Names of the checkpoints that it builds on, the full one first."""
        names: list[str] = self.facts["parents"]
        return names

    def table(self, name: str) -> dict[str, Any]:
        """Returns the manifest's entry of a table."""
        entry: dict[str, Any] = self.facts["tables"][name]
        return entry


def open_chain(path: Path, thorough: bool = True) -> list[StoredCheckpoint]:
    """Returns the checkpoint in a directory after those that it builds on, the full one first.

    It checks every file that a restoration reads before any is used. In checkpoints that it builds
    on, these are only the tables' files.

    Args:
        path: the directory.
        thorough: compare checksums of files; otherwise only the manifest's checksum and the sizes
            of files.

    Raises:
        DataLossError: a file of the chain is missing or damaged, or a checkpoint of the chain is
            missing or is another one.
        FailedPreconditionError: a checkpoint has another format.
    """
    newest = _open(path)
    _check_files(newest, "", thorough)
    chain = []
    for name, seal in zip(newest.parents, newest.facts["parent_seals"], strict=True):
        try:
            parent = _open(path.with_name(name))
            _check_files(parent, f"{TABLES}/", thorough)
        except DataLossError as err:
            raise DataLossError(f"{path.name} builds on {name}: {err}") from err
        if parent.seal != seal:
            raise DataLossError(f"{path.name} builds on another {name} than the one that is there")
        if parent.facts["tables"].keys() != newest.facts["tables"].keys():
            raise DataLossError(f"{path.name} builds on {name}, which has other tables")
        chain.append(parent)
    return [*chain, newest]


def _open(path: Path) -> StoredCheckpoint:
    facts = read_manifest(path)
    if "format" not in facts:
        raise DataLossError(f"{path / MANIFEST} is no manifest of a checkpoint: it has no format")
    number = facts["format"]
    model = _MODELS.get(number) if isinstance(number, int) else None
    if model is None:
        raise FailedPreconditionError(
            f"{path / MANIFEST} has format {number!r}, this version of Hotrow reads "
            f"{' and '.join(map(str, _MODELS))}; start a new run, or use the version that wrote it"
        )
    try:
        model.model_validate(facts)
        seals, parents = list(facts["parent_seals"]), list(facts["parents"])
        if len(seals) != len(parents) or not all(_NAME.fullmatch(name) for name in parents):
            raise ValueError("parents")
        for table in facts["tables"].values():
            for file in files_of(table):
                # Readers read only files that have a checksum in the manifest.
                if f"{TABLES}/{file}" not in facts["files"]:
                    raise ValueError(file)
    except pydantic.ValidationError as err:
        first = err.errors(include_url=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise DataLossError(
            f"{path / MANIFEST} is no manifest of a checkpoint: {where}: {first['msg']}"
        ) from err
    except ValueError as err:
        raise DataLossError(f"{path / MANIFEST} is no manifest of a checkpoint: {err}") from err
    return StoredCheckpoint(path, facts, seal_of(facts))


def _check_files(checkpoint: StoredCheckpoint, below: str, thorough: bool) -> None:
    files = {
        name: facts for name, facts in checkpoint.facts["files"].items() if name.startswith(below)
    }
    check_files(checkpoint.path, files, digest_bytes=None if thorough else 0)
