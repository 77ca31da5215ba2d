"""A cut between the step at which it is taken and its commit, as rank 0 knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotrow.norms import GateError, Norm, check_growth
from hotrow.ops.export.dense_checkpoint import DenseForm
from hotrow.ops.export.gates import measured_dense
from hotrow.store.cut_writing import CutBegun
from hotrow.trainer.online.publishing.gate import CanaryScores
from hotrow.trainer.online.publishing.journal import Entry
from hotrow.trainer.online.publishing.part import CutPart, norms_of_parts
from hotrow.trainer.online.publishing.view import CHANGED_ROWS, CutView


@dataclass
class TakenCut:
    """A cut that the ranks have taken.

    Attributes:
        begun: its version.
        view: rank 0's view.
        entry: for journals.
        newest: time of the newest event in it, Unix seconds; NaN: not known.
        at: when it was taken, monotonic seconds.
        scores: of the canary.
        parts: by rank.
        dense: packed dense weights.
        norms: of the dense weights.
        problem: about dense weights that are not finite; "": all are.
        failed: why a rank could not stage its part; "": none failed so far.
    """

    begun: CutBegun
    view: CutView
    entry: Entry
    newest: float
    at: float
    scores: CanaryScores | None
    parts: dict[int, CutPart] = field(default_factory=dict)
    dense: bytes = b""
    norms: list[Norm] = field(default_factory=list)
    problem: str = ""
    failed: str = ""

    @property
    def is_staged(self) -> bool:
        """Whether each rank has staged its part, or one has failed."""
        return bool(self.failed) or len(self.parts) == self.entry.ranks

    @property
    def event_ms(self) -> int:
        """Time of the newest event in it, Unix milliseconds; 0: not known."""
        return 0 if np.isnan(self.newest) else int(self.newest * 1000)

    def pack_dense(self, form: DenseForm, names: Sequence[str]) -> None:
        """Packs and measures the dense weights, if the cut has some of its own.

        Args:
            form: that of the version.
            names: of the variables.
        """
        if not self.view.has_dense:
            return
        for number, (name, values) in enumerate(zip(names, self.view.dense, strict=True)):
            if np.issubdtype(values.dtype, np.floating):
                measured = measured_dense(number, name, values)
                self.problem = self.problem or measured.problem() or ""
                self.norms.append(measured.norm())
        self.dense, _ = form.packed(self.view.dense)

    def checked_norms(
        self, before: Mapping[str, Norm], ratio: float | None, force: bool
    ) -> dict[str, Norm]:
        """Returns the norms that servers have after this cut, by name.

        Args:
            before: those that they have before it.
            ratio: how many times a norm may grow; None: any number of times.
            force: whether it is published whatever its values are.

        Raises:
            GateError: a value is not finite, or a norm grows too much.
        """
        parts = list(self.parts.values())
        of_rows = norms_of_parts(parts)
        now = {**{norm.name: norm for norm in self.norms}, **of_rows}
        if not force:
            for problem in filter(None, [self.problem, *(part.problem for part in parts)]):
                raise GateError(problem)
            check_growth(_known(before), list(now.values()), ratio)
        # Whole tables are not measured: their norms go on from those of the last full export.
        for name, norm in of_rows.items():
            whole = before.get(name.removeprefix(CHANGED_ROWS))
            if whole is not None and whole.largest < norm.largest:
                now[whole.name] = whole.model_copy(update={"largest": norm.largest})
        return {**before, **now}


def _known(before: Mapping[str, Norm]) -> list[Norm]:
    """Returns norms to compare with: changed rows may be as large as those of the whole table.

    The rows of the cut before may have been few, and small ones.
    """
    known = []
    for name, norm in before.items():
        whole = before.get(name.removeprefix(CHANGED_ROWS), norm)
        largest, rms = max(norm.largest, whole.largest), max(norm.rms, whole.rms)
        known.append(norm.model_copy(update={"largest": largest, "rms": rms}))
    return known
