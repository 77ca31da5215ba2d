"""Where publishing goes on: which changes servers do not have yet."""

from __future__ import annotations

from collections.abc import Sequence
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
        journal_after: keys of cuts after this version are marked, too; None: none are.
        published: the cut on which that is based.
    """

    since: dict[str, int]
    journal_after: int | None
    published: Published

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values, for all ranks."""
        return {"since": self.since, "journal_after": self.journal_after}


def exported_rows(
    exported: Shown, generation: str, tables: Sequence[str], lineage: Lineage
) -> Published | None:
    """Returns the rows of a full export as what a checkpoint without a word of them goes on from.

    A checkpoint may be as old as the full export, which is made beside the training. Its journal
    then has all cuts since.

    Args:
        exported: the rows as exported.
        generation: name of the generation.
        tables: names of its tables, in their order.
        lineage: of the training.

    Returns:
        None: the training has not gone on from that export.
    """
    if not lineage.descends_from(exported.lineage, exported.step):
        return None
    clocks = dict(zip(tables, exported.clocks, strict=True))
    return Published(generation, exported.version, exported.identity, clocks)


def begin_of_process(
    shown: Shown,
    generation: str,
    tables: Sequence[str],
    lineage: Lineage,
    restored: Published | None,
    entries: list[Entry],
    states: Sequence[PublishedState] = (),
) -> Begin | None:
    """Returns how a trainer that has just started goes on from what servers show.

    Args:
        shown: what servers show.
        generation: name of the generation.
        tables: names of its tables, in their order.
        lineage: of the training.
        restored: of the checkpoint that it was resumed from, or `exported_rows`; None: not known.
        entries: of the journal.
        states: what was published of the generation, the oldest first.

    Returns:
        None: a base export is needed.
    """
    if lineage.descends_from(shown.lineage, shown.step):
        clocks = dict(zip(tables, shown.clocks, strict=True))
        return Begin(clocks, None, Published(generation, shown.version, shown.identity, clocks))
    if restored is not None and restored.generation == generation:
        start = restored.identity, restored.version
        if leads_from(entries, *start, shown.identity, generation):
            return Begin(restored.clocks, restored.version, restored)
    # A checkpoint that is older than the first cut names none, and the store may have lost the cut
    # that it names: the newest cut before it is looked for, from which the journal leads to what
    # servers show.
    for state in reversed(states):
        if not lineage.descends_from(state.lineage, state.step):
            continue
        if leads_from(entries, state.identity, state.version, shown.identity, generation):
            clocks = dict(zip(tables, state.clocks, strict=True))
            published = Published(generation, state.version, state.identity, clocks)
            return Begin(clocks, state.version, published)
    return None


def begin_again(
    shown: Shown,
    generation: str,
    tables: Sequence[str],
    lineage: Lineage,
    last: Published,
    in_doubt: set[str],
) -> Begin | bool | None:
    """Returns how a trainer goes on after a failure, with the marks that its tables have.

    Args:
        shown: what servers show.
        generation: name of the generation.
        tables: names of its tables, in their order.
        lineage: of the training.
        last: what it published last.
        in_doubt: identities of cuts whose commit failed, and may have been done.

    Returns:
        True: the marks are right. None: a base export is needed.

    Raises:
        FencedError: another process has published since.
    """
    if generation == last.generation and shown.identity in {last.identity, *in_doubt}:
        return True
    if lineage.descends_from(shown.lineage, shown.step) and generation == last.generation:
        clocks = dict(zip(tables, shown.clocks, strict=True))
        published = Published(generation, shown.version, shown.identity, clocks)
        return Begin(clocks, None, published)
    if generation != last.generation or shown.version > last.version:
        raise FencedError(
            f"another process has published step {shown.step} of generation {generation} since: "
            "this trainer ends; only one may publish a model"
        )
    return None
