"""Deletes generations that no server needs any more."""

from __future__ import annotations

from collections.abc import Callable

from hotrow.errors import (
    FailedPreconditionError,
    HotrowError,
    NotFoundError,
    UnavailableError,
)
from hotrow.store.cuts import cuts_of, discard_unfinished, forget_cuts
from hotrow.store.full_export import forget_progress
from hotrow.store.generations import Generations
from hotrow.store.readers import UNSEEN_SECONDS, forget_users, users
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State
from hotrow.store.undo import keep_newest_undos
from hotrow.store.withdrawn_cuts import forget_withdrawn


def delete_generation(
    store: RowStore,
    generation: Generation,
    report: Callable[[int, int], None] = lambda done, of: None,
    unseen_seconds: float = UNSEEN_SECONDS,
) -> None:
    """Deletes a generation with its rows, in small steps; continues an interrupted deletion.

    A mark in its record refuses new readers, then its readers are asked for. Only once there are
    none, the record says so and rows go: who finds the mark alone asks again.

    Args:
        store: the store.
        generation: the generation.
        report: called with (done, of), in shards times tables.
        unseen_seconds: how long ago the lease of a reader has ended that may still come back.

    Raises:
        FailedPreconditionError: it is live, or a server uses it.
        UnavailableError: the store does not answer; call it again.
    """
    generations = Generations(store.records)
    deleting = generations.begin_deleting(generation)
    if not deleting.unused:
        try:
            _check_unused(store, deleting, unseen_seconds)
        except BaseException as err:
            # The store that does not answer takes no mark back either; the next call asks again.
            if not isinstance(err, UnavailableError) and (
                generation.state is State.COMPLETE or _is_marked_alone(store, deleting)
            ):
                generations.keep(deleting)
            raise
        deleting = generations.note_unused(deleting)
    discard_unfinished(store, deleting)
    forget_cuts(store, deleting, cuts_of(store.records, deleting))
    forget_withdrawn(store.records, deleting)
    keep_newest_undos(store, deleting, 0)
    store.delete_rows(deleting, report)
    forget_progress(store.records, deleting)
    forget_users(store.records, deleting.generation)
    generations.forget(deleting)


def delete_model(
    store: RowStore,
    model: str,
    deleted: Callable[[Generation], None],
    report: Callable[[str], None] = lambda line: None,
    unseen_seconds: float = UNSEEN_SECONDS,
) -> None:
    """Deletes all generations of a model, also the live one. The caller holds the export lease.

    A generation whose record cannot be read stays.

    Args:
        store: the store.
        model: the model's name.
        deleted: called with each deleted generation.
        report: called with lines of progress.
        unseen_seconds: see `delete_generation`.

    Raises:
        NotFoundError: the model has no generation.
        FailedPreconditionError: a server uses one of them; if it did so at the start, nothing is
            deleted.
        UnavailableError: the store does not answer; call it again.
    """
    generations = Generations(store.records)
    found = generations.all(model)
    if not found:
        there = ", ".join(sorted({g.model for g in generations.all()})) or "none"
        raise NotFoundError(f"{store.url} has no rows of model {model!r}; its models: {there}")
    for generation in found:
        if not generation.unused:
            _check_unused(store, generation, unseen_seconds)
    generations.retire(model)
    for generation in found:

        def deleting(done: int, of: int, generation: Generation = generation) -> None:
            report(f"generation {generation.generation}: {done} of {of} parts deleted")

        delete_generation(store, generation, deleting, unseen_seconds)
        deleted(generation)


def _check_unused(store: RowStore, generation: Generation, unseen_seconds: float) -> None:
    if holders := users(store.records, generation.generation, unseen_seconds):
        raise FailedPreconditionError(
            f"generation {generation.generation} is in use by {', '.join(holders)}; end these "
            "servers first, or let them unload the version (platform delete --unseen_seconds 0: "
            "those whose lease has ended are dead)"
        )


def _is_marked_alone(store: RowStore, generation: Generation) -> bool:
    """Returns whether a complete generation is marked for deletion, and has all of its rows.

    Older versions of Hotrow deleted rows by the mark alone.
    """
    if generation.state is not State.DELETING or generation.unused:
        return False
    was_complete = all(table.digest for table in generation.tables)
    return was_complete and not store.missing_markers(generation)


def delete_unneeded(
    store: RowStore,
    model: str,
    keep: int,
    resumable: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[Generation]:
    """Deletes generations of a model; returns those deleted. The caller holds the export lease.

    It keeps the live and the previous generation, and generations with a server's lease, also one
    that ended less than `UNSEEN_SECONDS` ago without a release. It fills
    up to `keep` complete generations with the newest others. It deletes unfinished ones.

    Args:
        store: the store.
        model: the model's name.
        keep: number of complete generations.
        resumable: unfinished generations with this source are kept, too.
        report: called with a line for each generation that cannot be deleted.
    """
    generations = Generations(store.records)
    record = generations.model(model)
    found = generations.all(model)
    # The previous generation may have been deleted by hand.
    needed = {record.live, record.previous} & {generation.generation for generation in found}
    deleted = []
    left = keep - len(needed)
    for generation in reversed(found):
        if generation.generation in needed:
            if _is_marked_alone(store, generation):
                generations.keep(generation)
            continue
        if generation.state is State.WRITING and generation.source == resumable:
            continue
        if generation.state is State.COMPLETE:
            if users(store.records, generation.generation, UNSEEN_SECONDS):
                continue
            left -= 1
            if left >= 0:
                continue
        try:
            delete_generation(store, generation)
        except HotrowError as err:
            # A failure must not keep the others from deletion.
            report(f"generation {generation.generation} cannot be deleted: {err}")
            continue
        deleted.append(generation)
    return deleted
