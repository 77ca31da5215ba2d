"""The record of cuts that exports withdrew: they had lost blocks (docs/design/0008-cuts.md)."""

from __future__ import annotations

from hotrow.store.cuts import CutRecord
from hotrow.store.record_format import StoredRecord, read_record
from hotrow.store.row_store import Records
from hotrow.store.spec import Generation

_WITHDRAWN = "withdrawn/"


class Withdrawn(StoredRecord):
    """The newest withdrawn cut: it or an earlier one lost blocks; servers may show it still.

    Attributes:
        version: version of its rows.
        step: training step that it showed.
        lineage: id of the last start of training behind it.
    """

    version: int
    step: int
    lineage: str


def note_withdrawn(records: Records, generation: Generation, cut: CutRecord) -> None:
    """Records that a cut is withdrawn, permanently: later cuts continue from it, too."""
    name = _WITHDRAWN + generation.generation
    note = Withdrawn(version=cut.version, step=cut.step, lineage=cut.lineage)
    records.swap(name, records.get(name), note.model_dump_json())


def withdrawn_from(records: Records, generation: Generation) -> Withdrawn | None:
    """Returns the newest cut withdrawn from a generation, or None."""
    name = _WITHDRAWN + generation.generation
    text = records.get(name)
    return None if text is None else read_record(Withdrawn, text, name)


def forget_withdrawn(records: Records, generation: Generation) -> None:
    """Removes that record, for a generation that is being deleted."""
    name = _WITHDRAWN + generation.generation
    records.swap(name, records.get(name), None)
