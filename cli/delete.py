"""`platform delete`: generations of a store that no server uses."""

from __future__ import annotations

import contextlib

import click

from hotrow.cli.progress_lines import ProgressLines
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.errors import FailedPreconditionError, InvalidArgumentError
from hotrow.store import open_store
from hotrow.store.bad_records import remove_bad_record
from hotrow.store.deletion import delete_generation, delete_model
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.readers import UNSEEN_SECONDS
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State


@click.command("delete")
@click.argument("url", metavar="STORE_URL")
@click.option("--model", metavar="NAME", help="All generations of this model, also the live one.")
@click.option(
    "--generation",
    "names",
    multiple=True,
    metavar="ID",
    help="Only this one, as `platform inspect STORE_URL` names it; may be repeated.",
)
@click.option(
    "--record",
    metavar="NAME",
    help="Remove this control record, which cannot be read (`platform inspect STORE_URL` lists "
    "such); rows that only it names stay.",
)
@click.option(
    "--unseen_seconds",
    type=click.FloatRange(min=0),
    default=UNSEEN_SECONDS,
    show_default=True,
    metavar="N",
    help="A server that disappeared less than N seconds ago still uses its rows: it may be cut "
    "off from the store. 0 for a server that is known to be dead.",
)
@store_flags
def command(
    url: str,
    model: str | None,
    names: tuple[str, ...],
    record: str | None,
    unseen_seconds: float,
    **access: str,
) -> None:
    """Delete rows of exported versions from a store, in steps that its clients hardly notice.

    What a server uses, and without --model what is live, is not deleted. Exports delete older
    generations by themselves (--keep_generations); this is for models that are exported no more.
    """
    if (model is not None) + bool(names) + (record is not None) != 1:
        raise InvalidArgumentError(
            "give --model NAME or --generation ID or --record NAME, one of them; `platform inspect "
            f"{url}` lists them"
        )
    with contextlib.closing(open_store(url, take_store_access(access))) as store:
        generations = Generations(store.records)
        if model is not None:
            with lock_exports(store.records, model):
                delete_model(store, model, _deleted, ProgressLines(), unseen_seconds)
            return
        if record is not None:
            click.echo(
                f"Removed a record. It could not be read: {remove_bad_record(store, record)}"
            )
            return
        chosen = [generations.get(name) for name in names]
        for generation in chosen:
            _delete(store, generation, unseen_seconds)


def _delete(store: RowStore, generation: Generation, unseen_seconds: float) -> None:
    with lock_exports(store.records, generation.model):
        if Generations(store.records).model(generation.model).live == generation.generation:
            raise FailedPreconditionError(
                f"generation {generation.generation} is the live one of model "
                f"{generation.model!r}; export another one, or delete all with "
                f"--model {generation.model}"
            )
        lines = ProgressLines()

        def deleting(done: int, of: int) -> None:
            lines(f"{done} of {of} parts")

        delete_generation(store, generation, deleting, unseen_seconds)
    _deleted(generation)


def _deleted(generation: Generation) -> None:
    rows = sum(table.rows for table in generation.tables)
    what = "" if generation.state is State.COMPLETE else f", {generation.state}"
    click.echo(
        f"Deleted generation {generation.generation}: {generation.model} version "
        f"{generation.version}, {rows} rows{what}"
    )
