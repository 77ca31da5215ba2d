"""Cuts as files that the executable reads: rows and weights, each file complete or absent."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from hotrow.errors import DataLossError
from hotrow.protos import control_pb2
from hotrow.serving.updates.finite_cuts import FiniteCuts, WrongRows
from hotrow.serving.updates.wanted_cuts import WantedCuts
from hotrow.store.row_store import BLOCK_BYTES

if TYPE_CHECKING:
    from hotrow.store.bound_rows import BoundRows
    from hotrow.store.cut_blocks import Block
    from hotrow.store.cuts import CutRecord
    from hotrow.store.row_store import Place

_ROWS, _DENSE, _UNFINISHED = ".rows", ".dense", ".unfinished"
# Read from the store at a time: reading more would look like a silent store.
_BYTES_AT_ONCE = 8 << 20

Asking = Callable[[], AbstractContextManager[None]]
"""Surrounds each wait for the store."""


class CutFiles:
    """The files of one version; a new control process finds those of the previous one.

    Args:
        folder: of the files; created if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._finite = FiniteCuts()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(f"*{_UNFINISHED}"):  # left by a killed process
            _delete(path)

    def write(self, bound: BoundRows, wanted: WantedCuts, asking: Asking) -> control_pb2.ShownCut:
        """Writes missing files; returns the state with the paths of all its files.

        Args:
            bound: the rows that the cuts change; their store has the cuts.
            wanted: the state to show.
            asking: entered for each wait for the store.

        Raises:
            NotFiniteError: a row or weight is not finite.
            DataLossError: a block is missing or damaged.
            UnavailableError: the store does not answer.
            OSError: the disk is full or refuses.
        """
        shown = control_pb2.ShownCut(version=wanted.version, fence=wanted.fence)
        if wanted.newest is not None:
            shown.identity = wanted.newest.identity
        layers = [(cut, self._rows(bound, cut, asking)) for cut in wanted.layers]
        for cut, path in layers:
            shown.layers.add(version=cut.version, blocks=str(path))
        dense = None
        if wanted.newest is not None and wanted.newest.dense_places:
            dense = wanted.newest, self._dense(bound, wanted.newest, asking)
            shown.dense = str(dense[1])
        self._finite.check(bound.generation, layers, dense)
        return shown

    def with_rows(self, cuts: Iterable[CutRecord], most_bytes: int) -> list[CutRecord]:
        """Returns the newest of these cuts whose rows are here, the oldest first.

        Args:
            cuts: any.
            most_bytes: of all of their rows.
        """
        found: dict[Path, CutRecord] = {}
        for cut in sorted(cuts, key=lambda cut: cut.version, reverse=True):
            path = self._path(cut, _ROWS)
            if path in found or not path.exists():
                continue
            most_bytes -= path.stat().st_size
            if most_bytes < 0:
                break
            found[path] = cut
        return list(found.values())[::-1]

    def keep(
        self, shown: Iterable[control_pb2.ShownCut], rows_of: Iterable[CutRecord] = ()
    ) -> None:
        """Deletes files that none of these states names, except the rows of some cuts."""
        named = {self._path(cut, _ROWS) for cut in rows_of}
        for cut in shown:
            named |= {Path(layer.blocks) for layer in cut.layers}
            named |= {Path(cut.dense).parent} if cut.dense else set()
        for path in self._folder.iterdir():
            if path not in named:
                _delete(path)
        self._finite.forget(named)

    def close(self) -> None:
        """Deletes all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _rows(self, bound: BoundRows, cut: CutRecord, asking: Asking) -> Path:
        path = self._path(cut, _ROWS)
        if path.exists():
            return path
        unfinished = self._path(cut, _ROWS + _UNFINISHED)
        with contextlib.ExitStack() as stack:
            stack.callback(_delete, unfinished)
            wrong = WrongRows(bound.generation)
            with unfinished.open("wb") as file:
                for found in _row_blocks(bound, cut, asking):
                    file.write(b"".join(content for content, _ in found))
                    for _, block in found:
                        wrong.look_at(block)
            unfinished.rename(path)
            self._finite.note(path, wrong)
        return path

    def _dense(self, bound: BoundRows, cut: CutRecord, asking: Asking) -> Path:
        from hotrow.store import cut_dense

        # By their content: most cuts may have the weights of the cut before.
        folder = self._folder / f"{cut.dense_sha256}{_DENSE}"
        if folder.exists():
            return folder / cut_dense.PREFIX
        unfinished = folder.with_name(folder.name + _UNFINISHED)
        with contextlib.ExitStack() as stack:
            stack.callback(_delete, unfinished)
            content = b"".join(_dense_contents(bound, cut, asking))
            if hashlib.sha256(content).hexdigest() != cut.dense_sha256:
                raise DataLossError(
                    f"{bound.store.url}: the dense weights of cut {cut.version:016x} are not those "
                    "of its record"
                )
            unfinished.mkdir()
            cut_dense.unpack(content, unfinished)
            unfinished.rename(folder)
        return folder / cut_dense.PREFIX

    def _path(self, cut: CutRecord, kind: str) -> Path:
        # Version and identity: other content never has this name.
        return self._folder / f"{cut.version:016x}-{cut.identity or 'none'}{kind}"


def _row_blocks(
    bound: BoundRows, cut: CutRecord, asking: Asking
) -> Iterator[list[tuple[bytes, Block]]]:
    from hotrow.store.cuts import checked_row_blocks

    for places in _some(cut.places, cut.block_bytes):
        with asking():
            found = list(checked_row_blocks(bound.store, bound.generation, cut, places))
        yield found


def _dense_contents(bound: BoundRows, cut: CutRecord, asking: Asking) -> Iterator[bytes]:
    from hotrow.store.cuts import dense_of

    for places in _some(cut.dense_places, BLOCK_BYTES):
        part = cut.model_copy(update={"dense_places": places})
        with asking():
            content = dense_of(bound.store, bound.generation, part)
        yield content


def _some(places: tuple[Place, ...], block_bytes: int) -> Iterator[tuple[Place, ...]]:
    at_once = max(1, _BYTES_AT_ONCE // block_bytes)
    for first in range(0, len(places), at_once):
        yield places[first : first + at_once]


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
