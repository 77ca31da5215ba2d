"""The gate of a server: cuts with values that are not finite are not taken."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hotrow.errors import DataLossError
from hotrow.serving.wire.tensor_bundle import floating_tensors

if TYPE_CHECKING:
    from hotrow.store.cut_blocks import Block
    from hotrow.store.cuts import CutRecord
    from hotrow.store.row_store import Keys
    from hotrow.store.spec import Generation

_NOT_FINITE = "not finite (NaN or an infinity)"
_KEEPS = "the version keeps what it shows; export again, or roll back"


class NotFiniteError(DataLossError):
    """A cut has values that are not finite.

    Attributes:
        version: version of that cut.
    """

    def __init__(self, message: str, version: int) -> None:
        """Makes the exception."""
        super().__init__(message)
        self.version = version


class Gate:
    """Leaves out cuts from the first one that is not finite on, until there is a newer one."""

    def __init__(self) -> None:
        self._newest = 0
        self._refused: tuple[int, int] | None = None  # the newest cut then, the first one refused

    def takeable(self, cuts: Sequence[CutRecord]) -> list[CutRecord]:
        """Returns the cuts that may be shown, the oldest first."""
        self._newest = cuts[-1].version if cuts else 0
        if not self.is_closed:
            return list(cuts)
        assert self._refused is not None  # it is closed
        return [cut for cut in cuts if cut.version < self._refused[1]]

    @property
    def is_closed(self) -> bool:
        """Whether it leaves out the newest cut."""
        return self._refused is not None and self._refused[0] == self._newest

    def refuse(self, error: NotFiniteError) -> None:
        """Leaves out the cut of an error, and later ones."""
        self._refused = self._newest, error.version


class WrongRows:
    """Finds the rows of a cut with values that are not finite.

    Args:
        generation: the rows that the cut changes.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._found: dict[int, list[Keys]] = {}

    def look_at(self, block: Block) -> None:
        """Checks the rows of a block."""
        from hotrow.store.cut_blocks import TOMBSTONE
        from hotrow.store.finite_rows import finite_rows

        row_type = self._generation.tables[block.table].row_type
        wrong = ~finite_rows(row_type, block.rows) & (block.versions & TOMBSTONE == 0)
        if wrong.any():
            self._found.setdefault(block.table, []).append(block.keys[wrong])

    def by_table(self) -> dict[int, Keys]:
        """Returns the keys of these rows, by the table's number."""
        return {table: np.concatenate(keys) for table, keys in self._found.items()}


class FiniteCuts:
    """Checks the files of cuts; remembers what it found, by file."""

    def __init__(self) -> None:
        self._wrong_rows: dict[Path, Mapping[int, Keys]] = {}
        self._wrong_dense: dict[Path, str | None] = {}

    def check(
        self,
        generation: Generation,
        layers: Sequence[tuple[CutRecord, Path]],
        dense: tuple[CutRecord, Path] | None,
    ) -> None:
        """Checks what a version would show; forced cuts pass.

        A row of a cut that a newer cut replaces is not shown, and may be anything.

        Args:
            generation: the rows that the cuts change.
            layers: the cuts and their files of rows, the newest first.
            dense: the newest cut and the prefix of its checkpoint.

        Raises:
            NotFiniteError: a row or dense weight is not finite.
            DataLossError: a file is damaged.
        """
        if dense is not None and not dense[0].forced:
            self._check_dense(*dense)
        for place, (cut, path) in enumerate(layers):
            if cut.forced:
                continue
            for table, keys in self._wrong_of(generation, cut, path).items():
                shown = keys
                for newer, newer_path in layers[:place]:
                    shown = shown[~np.isin(shown, _keys_of(generation, newer, newer_path, table))]
                if len(shown):
                    raise NotFiniteError(
                        f"table {generation.tables[table].name!r}: {len(shown)} rows of cut "
                        f"{cut.version:016x} are {_NOT_FINITE}, the first of them key {shown[0]}; "
                        f"{_KEEPS}",
                        cut.version,
                    )

    def note(self, path: Path, wrong: WrongRows) -> None:
        """Remembers what the rows of a file are, when they were looked at already."""
        self._wrong_rows[path] = wrong.by_table()

    def forget(self, kept: Container[Path]) -> None:
        """Forgets all files but these, and all checkpoints but those in these folders."""
        self._wrong_rows = {p: keys for p, keys in self._wrong_rows.items() if p in kept}
        self._wrong_dense = {p: name for p, name in self._wrong_dense.items() if p.parent in kept}

    def _check_dense(self, cut: CutRecord, prefix: Path) -> None:
        if prefix not in self._wrong_dense:
            self._wrong_dense[prefix] = _wrong_tensor(prefix)
        name = self._wrong_dense[prefix]
        if name is not None:
            raise NotFiniteError(
                f"the dense weight {name} of cut {cut.version:016x} is {_NOT_FINITE}; {_KEEPS}",
                cut.version,
            )

    def _wrong_of(self, generation: Generation, cut: CutRecord, path: Path) -> Mapping[int, Keys]:
        from hotrow.store.cut_blocks import blocks_of

        if path not in self._wrong_rows:
            wrong = WrongRows(generation)
            for block in blocks_of(path, generation, cut.version):
                wrong.look_at(block)
            self.note(path, wrong)
        return self._wrong_rows[path]


def _keys_of(generation: Generation, cut: CutRecord, path: Path, table: int) -> Keys:
    from hotrow.store.cut_blocks import blocks_of

    keys = [b.keys for b in blocks_of(path, generation, cut.version) if b.table == table]
    return np.concatenate([np.empty(0, np.int64), *keys])


def _wrong_tensor(prefix: Path) -> str | None:
    """Returns the name of a weight with a value that is not finite."""
    from hotrow.store.finite_rows import finite_bfloat16

    for name, values in floating_tensors(prefix):
        finite = finite_bfloat16(values) if values.dtype == np.uint16 else np.isfinite(values)
        if not finite.all():
            return name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
    return None
