"""`platform export`: a run directory -> a servable version directory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.errors import InvalidArgumentError
from hotrow.store.spec import DEFAULT_SHARDS, STORED_TYPES, RowType

_LINE_SECONDS = 5.0


class _Progress:
    """Prints a line of progress now and then, on standard error."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        if time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            click.echo(line, err=True)


@click.command(name="export")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "base",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="BASE_DIR",
    help="Folder of all models; the version is written to BASE_DIR/NAME/VERSION.",
)
@click.option("--name", required=True, help="Name of the model, as requests will use it.")
@click.option("--version", type=int, help="Default: one more than the newest.")
@click.option(
    "--store",
    metavar="URL",
    help="Where the rows go: file:///DIR, redis://HOST, rediss://, redis+cluster://, "
    "redis+sentinel://, redis+unix://. Default: into the version directory.",
)
@store_flags
@click.option(
    "--row_type",
    type=click.Choice(STORED_TYPES),
    help="How weights are stored. Default: as each table has them.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only the N most frequent rows of each table.",
)
@click.option(
    "--store_shards",
    type=int,
    default=DEFAULT_SHARDS,
    show_default=True,
    help="Virtual shards of the rows in the store, a power of two; for a large Redis Cluster.",
)
@click.option(
    "--keep_generations",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Exports of the model that stay in the store: this one, the one before, and so on; those "
    "that servers use stay beyond that.",
)
@click.option(
    "--standalone",
    is_flag=True,
    help="Keep the rows in the graph, with stock TensorFlow ops only: for any TensorFlow Serving.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write what was exported as JSON.",
)
def command(
    run_dir: Path,
    base: Path,
    name: str,
    version: int | None,
    store: str | None,
    row_type: RowType | None,
    top: int | None,
    store_shards: int,
    keep_generations: int,
    standalone: bool,
    json_path: Path | None,
    **access: str,
) -> None:
    """Write the model of RUN_DIR's newest checkpoint as a version directory.

    The version appears whole, by one rename, so a server may already watch BASE_DIR/NAME.
    """
    import_tensorflow_quietly()
    from hotrow.ops.export import RowOptions, check_arguments
    from hotrow.trainer.export import export_version
    from hotrow.trainer.trained_run import load_run

    rows = RowOptions(
        store, take_store_access(access), row_type, top, store_shards, keep_generations
    )
    check_arguments(name, version, rows, standalone)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise InvalidArgumentError(f"--json {json_path}: its folder does not exist; make it first")
    run = load_run(run_dir)
    directory, manifest = export_version(
        run.model,
        base,
        name,
        step=run.position.step,
        version=version,
        rows=rows,
        standalone=standalone,
        report=_Progress(),
    )
    click.echo(
        f"Exported {name} version {manifest.version}: {manifest.rows} rows in "
        f"{len(manifest.tables)} tables, step {manifest.step}, to {directory}"
    )
    if json_path is not None:
        facts = {"directory": str(directory), "rows": manifest.rows, **manifest.model_dump()}
        json_path.write_text(json.dumps(facts, indent=1) + "\n")
