"""Where publishing goes on: which changes servers do not have yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hotrow.errors import FencedError
from hotrow.lineage import Lineage
from hotrow.store.published import PublishedState
from hotrow.trainer.online.publishing.journal import Entry, leads_from
from hotrow.trainer.online.publishing.store_writer import Shown


@dataclass(frozen=True)
class Published:
    """The cut on which the marks of changed rows are based, for checkpoints.

    Attributes:
        generation: name of the generation.
        version: of the cut, or of the rows as exported.
        identity: of the cut; "": the rows as exported.
        clocks: clocks of the tables in it, by name.
    """

    generation: str
    version: int
    identity: str
    clocks: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values."""
        return vars(self)

    @classmethod
    def of_json(cls, facts: dict[str, Any]) -> Published:
        """Returns what `as_json` returned."""
        return cls(**facts)


@dataclass(frozen=True)
class Begin:
    """How to mark the rows that servers do not have.

    Attributes:
        since: rows that changed after these clocks are marked, by table.
        journal_after: keys of cuts after this version are marked, too. The store may have lost
            them, servers show them, and a killed process trained them.
        published: the cut on which that is based.
    """

    since: dict[str, int]
    journal_after: int
    published: Published

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values, for all ranks."""
        return {"since": self.since, "journal_after": self.journal_after}


def published_before(
    exported: Shown,
    states: Sequence[PublishedState],
    generation: str,
    tables: Sequence[str],
    lineage: Lineage,
    restored: Published | None,
) -> list[Published]:
    """Returns what was published of a generation and the training has gone on from.

    A checkpoint may be as old as the full export, which is made beside the training: then the rows
    as exported are all that there is.

    Args:
        exported: the rows as exported.
        states: what was published of the generation, the oldest first.
        generation: its name.
        tables: names of its tables, in their order.
        lineage: of the training.
        restored: of the checkpoint that it was resumed from; None: not known.

    Returns:
        The newest one first.
    """
    found = [] if restored is None or restored.generation != generation else [restored]
    before: list[PublishedState | Shown] = [*reversed(states), exported]
    for state in before:
        if lineage.descends_from(state.lineage, state.step):
            clocks = dict(zip(tables, state.clocks, strict=True))
            found.append(Published(generation, state.version, state.identity, clocks))
    return found


def begin_anew(
    shown: Shown,
    generation: str,
    tables: Sequence[str],
    lineage: Lineage,
    before: Sequence[Published],
    entries: Callable[[], list[Entry]],
) -> Begin | None:
    """Returns which rows to mark so that publishing goes on from what servers show.

    Args:
        shown: what servers show.
        generation: name of the generation.
        tables: names of its tables, in their order.
        lineage: of the training.
        before: see `published_before`.
        entries: returns those of the journal.

    Returns:
        None: a base export is needed.

    Raises:
        DataLossError: the journal is damaged.
    """
    if lineage.descends_from(shown.lineage, shown.step):
        clocks = dict(zip(tables, shown.clocks, strict=True))
        published = Published(generation, shown.version, shown.identity, clocks)
        return Begin(clocks, shown.version, published)
    # Servers show a cut of a process that was killed. It is newer than the checkpoint, or the store
    # went back to it. A cut before it is looked for, from which the training and the journal lead
    # to what servers show. A checkpoint that is older than the first cut names none, and the store
    # may have lost the one that it names.
    noted = entries()
    for state in before:
        if leads_from(noted, state.identity, state.version, shown.identity, generation):
            return Begin(state.clocks, state.version, state)
    return None


def begin_again(
    shown: Shown,
    generation: str,
    tables: Sequence[str],
    lineage: Lineage,
    last: Published,
    in_doubt: set[str],
    before: Sequence[Published],
    entries: Callable[[], list[Entry]],
) -> Begin | bool | None:
    """Returns how a trainer goes on after a failure, with the marks that its tables have.

    Args:
        shown: what servers show.
        generation: name of the generation.
        tables: names of its tables, in their order.
        lineage: of the training.
        last: what it published last.
        in_doubt: identities of cuts whose commit failed, and may have been done.
        before: see `published_before`.
        entries: returns those of the journal.

    Returns:
        True: the marks are right. None: a base export is needed.

    Raises:
        DataLossError: the journal is damaged.
        FencedError: another process has published since.
    """
    if generation == last.generation:
        if shown.identity in {last.identity, *in_doubt}:
            return True
        begin = begin_anew(shown, generation, tables, lineage, before, entries)
        if begin is not None or shown.version <= last.version:
            return begin
    raise FencedError(
        f"another process has published step {shown.step} of generation {generation} since: "
        "this trainer ends; only one may publish a model"
    )
