"""One rank's part of a cut: read from its view, noted in the journal, staged in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.norms import Measured, Norm
from hotrow.store.cut_writing import CutStaging, StagedPart
from hotrow.store.cuts import TableChanges
from hotrow.store.spec import Generation
from hotrow.trainer.online.publishing.journal import Entry, Journal
from hotrow.trainer.online.publishing.view import CutView


@dataclass(frozen=True)
class CutPart:
    """What one rank has of a cut.

    Attributes:
        staged: where its blocks are.
        norms: of its changed rows.
        problem: about rows that are not finite; "": all are.
        sizes: rows of this rank's tables, by name.
    """

    staged: StagedPart
    norms: tuple[Norm, ...] = ()
    problem: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns it as JSON values, for rank 0."""
        return {
            "staged": vars(self.staged),
            "norms": [norm.model_dump() for norm in self.norms],
            "problem": self.problem,
            "sizes": self.sizes,
        }

    @classmethod
    def of_json(cls, facts: dict[str, Any]) -> CutPart:
        """Returns what `as_json` returned."""
        staged = dict(facts["staged"])
        for name in ("places", "dense_places"):
            staged[name] = [tuple(place) for place in staged[name]]
        norms = tuple(Norm.model_validate(norm) for norm in facts["norms"])
        return cls(StagedPart(**staged), norms, facts["problem"], facts["sizes"])


@dataclass
class ReadChanges:
    """The changes of a view in memory.

    Attributes:
        pieces: (number of the table, changes).
        keys: keys of changed and removed rows, by table.
        measured: of the changed rows, by table.
        sizes: rows of the tables, by name.
    """

    pieces: list[tuple[int, TableChanges]] = field(default_factory=list)
    keys: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


def read_changes(view: CutView, generation: Generation) -> ReadChanges:
    """Reads a view to its end, so that training copies no further rows for it.

    Raises:
        FailedPreconditionError: the view was given up.
        InvalidArgumentError: a weight of an int8 row is not finite.
    """
    read = ReadChanges(sizes=view.sizes)
    for number, table in enumerate(generation.tables):
        if table.name not in view.clocks:
            continue  # another rank has it
        measured = view.measured(table.name, table.row_type)
        own: list[npt.NDArray[np.int64]] = []
        for changes in view.changes(table.name, table.row_type, measured):
            read.pieces.append((number, changes))
            own += [changes.keys, changes.removed]
        if own:
            read.keys[table.name] = np.concatenate(own)
        read.measured.append(measured)
    return read


def stage_part(
    read: ReadChanges,
    staging: CutStaging,
    journal: Journal,
    entry: Entry,
    dense: bytes = b"",
) -> CutPart:
    """Stages the changes of a rank, after their keys are in its journal.

    Args:
        read: the changes.
        staging: where they go.
        journal: of this rank.
        entry: the cut.
        dense: the dense weights, on rank 0.

    Raises:
        FailedPreconditionError: another exporter took over.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
        OSError: the journal cannot be written.
    """
    journal.write(entry, read.keys)
    for number, changes in read.pieces:
        staging.add_rows(number, changes)
    if dense:
        staging.add_dense(dense)
    problems = [problem for m in read.measured if (problem := m.problem()) is not None]
    sealed = staging.finish()
    return CutPart(sealed, norms_of(read.measured), problems[0] if problems else "", read.sizes)


def norms_of(measured: Sequence[Measured]) -> tuple[Norm, ...]:
    """Returns the norms of changed rows; a table without any has the norm of the cut before."""
    return tuple(one.norm() for one in measured if not one.is_empty)


def norms_of_parts(parts: Sequence[CutPart]) -> dict[str, Norm]:
    """Returns the largest norms of any rank, by name."""
    found: dict[str, Norm] = {}
    for part in parts:
        for norm in part.norms:
            known = found.get(norm.name, norm)
            found[norm.name] = Norm(
                name=norm.name,
                rms=max(known.rms, norm.rms),
                largest=max(known.largest, norm.largest),
            )
    return found
