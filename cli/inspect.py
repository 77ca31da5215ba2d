"""`platform inspect`: what a run, a checkpoint, a version, a model's folder or a store holds."""

from __future__ import annotations

import codecs
import json
import re
import shutil
import sys
from pathlib import Path

import click

from hotrow.cli.inspection_text import details, summary
from hotrow.cli.listing_text import listing
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.errors import DataLossError, InvalidArgumentError, NotFoundError
from hotrow.inspection import Inspection, inspect_store, inspect_version
from hotrow.model_listing import inspect_base, inspect_model, is_base, is_model
from hotrow.sealed_directory import MANIFEST
from hotrow.store.access import StoreAccess
from hotrow.version_layout import FILE_NAME

_CHECKPOINT = re.compile(r"step-\d+")


@click.command("inspect")
@click.argument("place", metavar="DIR|STORE_URL")
@click.option(
    "--table",
    "only",
    multiple=True,
    metavar="NAME",
    help="Read only this table of a run or checkpoint, and draw its histograms; may be repeated.",
)
@click.option(
    "--histograms", is_flag=True, help="Draw the histograms of every table of a run or checkpoint."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write it as JSON, too; - is standard output, and nothing else.",
)
@store_flags
def command(
    place: str,
    only: tuple[str, ...],
    histograms: bool,
    json_file: str | None,
    **access: str,
) -> None:
    """Show what a run, a checkpoint, a version, a folder of versions or models, or a store holds.

    Of a run, the newest undamaged checkpoint is checked against its checksums and its rows are
    read: skew (the share of lookups that went to the top 1 % and 10 % of the rows), ages, norms.
    Of a version, every file is checked against its checksum and every row against the digests of
    the manifest. Of a model's folder, BASE_DIR/NAME, the versions are listed: step, whether an
    incremental export changed it, rows, whether the store calls it live, the checkpoint behind it;
    of BASE_DIR, the models. Of a store, its generations: which one is live, rows, memory of a row,
    and how many shards each node has.

    \b
    Examples:
      platform inspect runs/a --histograms
      platform inspect runs/a/checkpoints/step-00005000 --table C3 --json c3.json
      platform inspect models/shop
      platform inspect redis+cluster://10.0.0.1,10.0.0.2
    """  # noqa: D301 (click wants a real \b)
    inspection = _inspect(place, only, histograms, take_store_access(access))
    content = json.dumps(inspection.as_dict(), indent=1)
    if json_file == "-":
        click.echo(content)
    else:
        _print(inspection, drawn=histograms or bool(only))
        if json_file is not None:
            Path(json_file).write_text(content + "\n", encoding="utf-8")
    _warn_of_rows_that_are_not_finite(inspection)
    if inspection.facts.get("rows_match") is False:
        raise DataLossError(
            f"{place}: the rows in the store are not those that were exported; export again"
        )


def _inspect(
    place: str, only: tuple[str, ...], histograms: bool, access: StoreAccess
) -> Inspection:
    path = Path(place)
    is_version = (path / "assets" / FILE_NAME).exists()
    if "://" not in place and not is_version:
        from hotrow.trainer.data.row_progress import RowProgress
        from hotrow.trainer.run_inspection import inspect_checkpoint, inspect_run

        def show(rows: int) -> RowProgress:
            return RowProgress("read", rows, passing=True)

        if (path / "config.yaml").exists():
            return inspect_run(path, only, show)
        if _is_checkpoint(path):
            return inspect_checkpoint(path, only, show)
    if only or histograms:
        raise InvalidArgumentError(
            f"{place} is no run and no checkpoint; leave out --table and --histograms"
        )
    if "://" in place:
        return inspect_store(place, access)
    if is_version:
        return inspect_version(path, access)
    if is_model(path):
        return inspect_model(path, access)
    if is_base(path):
        return inspect_base(path)
    if (path / "data.mdb").exists():
        return inspect_store(f"file://{path.resolve()}")
    if (path / "saved_model.pb").exists():
        raise NotFoundError(
            f"{place} is a SavedModel without {FILE_NAME} (a standalone export, or not ours): "
            "saved_model_cli shows it"
        )
    raise NotFoundError(
        f"{place} is no run (config.yaml), no checkpoint (step-...), no version "
        f"(assets/{FILE_NAME}), no folder of versions or models and no "
        "store; give one of these, or a URL such as file:///DIR"
    )


def _is_checkpoint(path: Path) -> bool:
    """Recognizes a checkpoint, even a damaged one or a copy under another name."""
    if not path.is_dir() or (path / "saved_model.pb").exists():
        return False
    return bool(_CHECKPOINT.fullmatch(path.resolve().name)) or (path / MANIFEST).exists()


def _print(inspection: Inspection, drawn: bool) -> None:
    is_listing = inspection.kind in ("model", "base", "store")
    lines = listing(inspection) if is_listing else summary(inspection)
    if drawn:
        blocks = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        width = shutil.get_terminal_size().columns
        for table in inspection.tables:
            lines += ["", *details(table, width, blocks)]
    click.echo("\n".join(lines))


def _warn_of_rows_that_are_not_finite(inspection: Inspection) -> None:
    for table in inspection.tables:
        if table.trained is not None and (rows := table.trained.statistics.not_finite):
            click.echo(
                f"Warning: {rows:,} of {table.rows:,} rows of table {table.name!r} hold a NaN or "
                "an infinity; resume from a checkpoint before it, with a lower learning rate",
                err=True,
            )
