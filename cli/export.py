"""`platform export`: a run directory -> a servable version directory, or changes of one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hotrow.cli.failures import EXIT_NOT_TAKEN
from hotrow.cli.progress_lines import ProgressLines
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.errors import InvalidArgumentError
from hotrow.store.spec import DEFAULT_SHARDS, STORED_TYPES, RowType

if TYPE_CHECKING:
    from hotrow.hold_bounds import HoldBounds
    from hotrow.norms import Gates
    from hotrow.ops.export import ExportedChanges
    from hotrow.store.access import StoreAccess
    from hotrow.store.cuts import CutRecord
    from hotrow.store.incremental_export import Outcome
    from hotrow.trainer.trained_run import TrainedRun

_WAIT_SECONDS = 60.0
# Options that a full export fixes for the incremental exports after it.
_OF_FULL_EXPORTS = (
    *("row_type", "top", "store_shards", "store_growth"),
    *("keep_generations", "standalone", "lender"),
)


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
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="Export the checkpoint of step N.  [default: the best, else the newest]",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Export this checkpoint of the run, perhaps a copy: .../step-00005000.",
)
@click.option(
    "--version", type=int, help="Default: one more than the newest; with --incremental the newest."
)
@click.option(
    "--store",
    metavar="URL",
    help="Where the rows go: file:///DIR, redis://HOST, rediss://, redis+cluster://, "
    "redis+sentinel://, redis+unix://. Default: into the version directory; with --incremental the "
    "version's own store.",
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
    "--store_growth",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Lay each table out for X times its rows, above 1 for at least 65,536: for tables that "
    "grow by incremental exports, whose rows would otherwise take longer to read and to replace.",
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
    "--incremental",
    is_flag=True,
    help="Write no version: bring the rows and weights that changed since the last export to the "
    "servers of one whose rows are in a store. Its earlier rows are replaced; --step goes back.",
)
@click.option(
    "--wait_seconds",
    type=click.FloatRange(min=0),
    default=_WAIT_SECONDS,
    show_default=True,
    help="With --incremental: how long to wait until all servers have taken the changes; exit code "
    "3 if they have not.",
)
@click.option(
    "--max_norm_ratio",
    type=click.FloatRange(min=1, min_open=True),
    metavar="X",
    help="Refuse tables and weights whose norm grows or shrinks more than X times. Default: "
    "export.max_norm_ratio of the run.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Export also values that are not finite, and norms that jump; servers take them, too.",
)
@click.option(
    "--store_wait_replicas",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="With --incremental: replicas of each Redis node that must have the changes before they "
    "are committed, and the commit before the command ends; a failover then loses neither.",
)
@click.option("--lender", default="", hidden=True)  # of the export lock: a trainer's full export
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
    step: int | None,
    checkpoint: Path | None,
    version: int | None,
    store: str | None,
    row_type: RowType | None,
    top: int | None,
    store_shards: int,
    store_growth: float,
    keep_generations: int,
    standalone: bool,
    incremental: bool,
    wait_seconds: float,
    max_norm_ratio: float | None,
    force: bool,
    store_wait_replicas: int,
    lender: str,
    json_path: Path | None,
    **access: str,
) -> None:
    """Write the model of RUN_DIR's best or newest checkpoint, or of --step, as a version directory.

    The version appears whole, by one rename, so a server may already watch BASE_DIR/NAME. Later
    checkpoints of the run can be brought to its servers without another one, by --incremental:
    they go from one state to the next whole.

    An incremental export replaces the rows of its version: the version then answers with the new
    step, and its earlier state is gone from the store. To go back, make a full export of the
    earlier checkpoint with --step N: it becomes the newest version. A run keeps the checkpoints of
    its last two exports for that.

    \b
    Examples:
      platform export runs/a --to models --name shop --store redis://10.0.0.1
      platform export runs/a --to models --name shop --incremental
      platform export runs/a --to models --name shop --store redis://10.0.0.1 --step 628
    """  # noqa: D301 (click wants a real \b)
    _check_options(click.get_current_context(), incremental)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise InvalidArgumentError(f"--json {json_path}: its folder does not exist; make it first")
    entry = dataclasses.replace(take_store_access(access), wait_replicas=store_wait_replicas)
    source = (run_dir, step, checkpoint)
    gate = (max_norm_ratio, force)
    if incremental:
        facts = _export_changes(source, base, name, version, store, entry, wait_seconds, gate)
    else:
        rows = (store, entry, row_type, top, store_shards, store_growth, keep_generations, lender)
        facts = _export_version(source, base, name, version, rows, standalone, gate)
    if json_path is not None:
        json_path.write_text(json.dumps(facts, indent=1) + "\n")
    if facts.get("waiting_for"):
        raise SystemExit(EXIT_NOT_TAKEN)


def _check_options(context: click.Context, incremental: bool) -> None:
    """Refuses options that have no meaning in this kind of export."""

    def given(names: tuple[str, ...]) -> list[str]:
        source = context.get_parameter_source
        return [name for name in names if source(name) is not ParameterSource.DEFAULT]

    if incremental and (wrong := given(_OF_FULL_EXPORTS)):
        raise InvalidArgumentError(
            f"--{wrong[0]} with --incremental: changes take the form of the version's full export; "
            f"leave --{wrong[0]} out, or make a full export"
        )
    if not incremental and given(("wait_seconds",)):
        raise InvalidArgumentError(
            "--wait_seconds without --incremental: a full export does not wait for servers; "
            "leave it out"
        )
    if not incremental and given(("store_wait_replicas",)):
        raise InvalidArgumentError(
            "--store_wait_replicas without --incremental: a full export reads back all that it "
            "wrote; leave it out"
        )


def _load(source: tuple[Path, int | None, Path | None]) -> TrainedRun:
    """Loads a run's checkpoint; source: the run directory, --step and --checkpoint."""
    from hotrow.trainer.trained_run import load_run

    run_dir, step, checkpoint = source
    return load_run(run_dir, step=step, checkpoint=checkpoint)


def _gates(run: TrainedRun, gate: tuple[float | None, bool]) -> Gates:
    """Returns the gates of a run; gate: --max_norm_ratio and --force."""
    from hotrow.norms import Gates

    ratio, force = gate
    return Gates(run.config.export.max_norm_ratio if ratio is None else ratio, force)


def _hold_bounds(run: TrainedRun) -> HoldBounds:
    """Returns how long readers may hold up the folding of a run's exports."""
    from hotrow.hold_bounds import HoldBounds

    export = run.config.export
    return HoldBounds(export.max_hold_seconds, export.max_hold_bytes)


def _export_version(
    source: tuple[Path, int | None, Path | None],
    base: Path,
    name: str,
    version: int | None,
    options: tuple[str | None, StoreAccess, RowType | None, int | None, int, float, int, str],
    standalone: bool,
    gate: tuple[float | None, bool],
) -> dict[str, Any]:
    import_tensorflow_quietly()
    from hotrow.ops.export import RowOptions, check_arguments
    from hotrow.trainer.export import export_version
    from hotrow.trainer.trained_run import keep_exported

    rows = RowOptions(*options)
    check_arguments(name, version, rows, standalone)
    run = _load(source)
    directory, manifest = export_version(
        run.model,
        base,
        name,
        step=run.position.step,
        lineage=run.lineage,
        version=version,
        rows=rows,
        standalone=standalone,
        checkpoint=str(run.checkpoint.resolve()),
        gates=_gates(run, gate),
        report=ProgressLines(),
    )
    keep_exported(run)
    click.echo(
        f"Exported {name} version {manifest.version}: {manifest.rows} rows in "
        f"{len(manifest.tables)} tables, step {manifest.step}, to {directory}"
    )
    return {"directory": str(directory), "rows": manifest.rows, **manifest.model_dump()}


def _export_changes(
    source: tuple[Path, int | None, Path | None],
    base: Path,
    name: str,
    version: int | None,
    store: str | None,
    access: StoreAccess,
    wait_seconds: float,
    gate: tuple[float | None, bool],
) -> dict[str, Any]:
    import_tensorflow_quietly()
    from hotrow.ops.export import check_change_arguments, find_version
    from hotrow.trainer.export import export_version_changes
    from hotrow.trainer.trained_run import keep_exported

    check_change_arguments(name, version, store)
    find_version(base, name, version)  # before the model is loaded

    def committed(cut: CutRecord) -> None:
        click.echo(
            f"Committed step {cut.step}: {cut.rows} rows changed, {cut.removed} removed; servers "
            "take it now"
        )

    run = _load(source)
    exported = export_version_changes(
        run.model,
        base,
        name,
        step=run.position.step,
        lineage=run.lineage,
        version=version,
        store=store,
        access=access,
        wait_seconds=wait_seconds,
        report=ProgressLines(),
        committed=committed,
        keys_before=run.keys_before,
        gates=_gates(run, gate),
        undo_cuts=run.config.export.undo_cuts,
        bounds=_hold_bounds(run),
    )
    keep_exported(run)
    click.echo(_summary(name, exported, run.position.step, wait_seconds))
    for line in _held_up(exported.outcome):
        click.echo(line)
    return exported.as_dict()


def _summary(name: str, exported: ExportedChanges, step: int, wait_seconds: float) -> str:
    outcome = exported.outcome
    where = f"{name} version {exported.manifest.version}"
    if outcome.waiting_for:
        holders = ", ".join(reader.holder for reader in outcome.waiting_for)
        return (
            f"{where} has step {step}, which not all servers have taken within {wait_seconds:g} s: "
            f"{holders}; the next export goes on where this one ends"
        )
    held = ""
    if outcome.held_by:
        holders = ", ".join(reader.holder for reader in outcome.held_by)
        held = f"; its rows stay apart until an export after the end of {holders} (hotrow.bind)"
    if not outcome.committed:
        return f"{where} has step {step} already: nothing new{held}"
    return f"Exported {where}: step {step}, all servers have taken it{held}"


def _held_up(outcome: Outcome) -> list[str]:
    """Returns a line for each reader that holds up folding, or did for too long."""
    lines = [f"Held up: {hold}" for hold in outcome.holds]
    lines += [f"Overruled: {hold}; it must begin again" for hold in outcome.overruled]
    return lines
