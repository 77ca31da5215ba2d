"""`platform export`: a run directory -> a servable version directory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.errors import InvalidArgumentError

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
    help="Where the rows go: file:///DIR. Default: into the version directory.",
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
    standalone: bool,
    json_path: Path | None,
) -> None:
    """Write the model of RUN_DIR's newest checkpoint as a version directory.

    The version appears whole, by one rename, so a server may already watch BASE_DIR/NAME.
    """
    import_tensorflow_quietly()
    from hotrow.ops.export import check_arguments
    from hotrow.trainer.export import export_version
    from hotrow.trainer.trained_run import load_run

    check_arguments(name, version, store, standalone)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise InvalidArgumentError(f"--json {json_path}: its folder does not exist; make it first")
    run = load_run(run_dir)
    directory, manifest = export_version(
        run.model,
        base,
        name,
        step=run.position.step,
        version=version,
        store=store,
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
