"""The newest cut of a version, for batch scoring in this process (docs/design/0008-cuts.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow import _native
from hotrow.errors import DataLossError
from hotrow.store.bound_rows import BoundRows
from hotrow.store.cut_dense import unpack
from hotrow.store.cuts import CutRecord, cuts_of, dense_of, laid_cuts, row_block_bytes

_VARIABLE = "dense_variables/{}/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class BoundCut:
    """The cut that lookups of this process read.

    Attributes:
        step: training step of the cut; None: rows as exported.
        weights: dense weights, in the order of the export; empty: as exported.
    """

    step: int | None = None
    weights: list[npt.NDArray[Any]] = field(default_factory=list)

    def assign_to(self, loaded: Any) -> None:
        """Assigns the cut's dense weights to a loaded version.

        Raises:
            DataLossError: the version has other dense weights.
        """
        variables = list(getattr(loaded, "dense_variables", []))
        if self.step is None or not self.weights:
            return
        if [tuple(v.shape) for v in variables] != [w.shape for w in self.weights]:
            raise DataLossError(
                f"the cut of step {self.step} has other dense weights than the version that it "
                "changes; make a full export"
            )
        for variable, weights in zip(variables, self.weights, strict=True):
            variable.assign(weights)


def show_newest_cut(manifest: Path, rows: BoundRows) -> BoundCut:
    """Makes lookups of this process read the newest cut; returns it, with its weights.

    Args:
        manifest: path of the attached version's manifest.
        rows: the rows of its generation.

    Raises:
        DataLossError: blocks of the cut are missing or damaged.
        UnavailableError: the store does not answer.
    """
    store, generation = rows.store, rows.generation
    while cuts := cuts_of(store.records, generation):
        try:
            return _show(manifest, rows, cuts)
        except DataLossError:
            # An export may have folded cuts and deleted them meanwhile; they are not needed any
            # more.
            if cuts_of(store.records, generation) == cuts:
                raise
    return BoundCut()


def _show(manifest: Path, rows: BoundRows, cuts: Sequence[CutRecord]) -> BoundCut:
    store, generation, newest = rows.store, rows.generation, cuts[-1]
    low = int(store.watermarks(generation).min())  # after the cuts: folded ones have theirs
    with tempfile.TemporaryDirectory(prefix="hotrow-cut-") as folder:
        weights = []
        if newest.dense_places:
            weights = _weights(unpack(dense_of(store, generation, newest), Path(folder)))
        layers = []
        fence = newest.version
        for cut in laid_cuts(cuts, lambda cut: not cut.folded or cut.version > low):
            fence = cut.previous or generation.row_version
            path = Path(folder) / f"{cut.version:016x}"
            with path.open("wb") as file:
                file.writelines(row_block_bytes(store, generation, cut))
            layers.append((str(path), cut.version))
        if low < fence:
            raise DataLossError(
                f"{store.url}: the store went back in time: generation {generation.generation} has "
                f"lost rows of the cut of step {newest.step}; export again"
            )
        _native.show_attached(str(manifest), newest.version, layers, fence)
    rows.note_cut(
        newest.version, identity=newest.identity, step=newest.step, lineage=newest.lineage
    )
    return BoundCut(newest.step, weights)


def _weights(prefix: Path) -> list[npt.NDArray[Any]]:
    reader = tf.train.load_checkpoint(str(prefix))
    names = reader.get_variable_to_shape_map()
    weights: list[npt.NDArray[Any]] = []
    while (name := _VARIABLE.format(len(weights))) in names:
        weights.append(np.asarray(reader.get_tensor(name)))
    return weights
