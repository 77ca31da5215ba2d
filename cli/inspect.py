"""`platform inspect`: tables, rows and bytes of a run, a version directory or a store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hotrow.errors import DataLossError, NotFoundError
from hotrow.inspection import InspectedTable, Inspection, inspect_store, inspect_version
from hotrow.manifest import FILE_NAME

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command("inspect")
@click.argument("place", metavar="RUN_DIR|VERSION_DIR|STORE_URL")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it as JSON, too.",
)
def command(place: str, json_path: Path | None) -> None:
    """Show what a run directory, a version directory or a store holds.

    Of a version, every file is checked against its checksum and every row against the digests of
    the manifest; of a run, the newest undamaged checkpoint is checked against its checksums.
    """
    inspection = _inspect(place)
    click.echo(_text(inspection))
    if json_path is not None:
        json_path.write_text(json.dumps(inspection.as_dict(), indent=1) + "\n")
    if inspection.facts.get("rows_match") is False:
        raise DataLossError(
            f"{place}: the rows in the store are not those that were exported; export again"
        )


def _inspect(place: str) -> Inspection:
    if "://" in place:
        return inspect_store(place)
    path = Path(place)
    if (path / "assets" / FILE_NAME).exists():
        return inspect_version(path)
    if (path / "config.yaml").exists():
        from hotrow.trainer.run_inspection import inspect_run

        return inspect_run(path)
    if (path / "data.mdb").exists():
        return inspect_store(f"file://{path.resolve()}")
    if (path / "saved_model.pb").exists():
        raise NotFoundError(
            f"{place} is a SavedModel without {FILE_NAME} (a standalone export, or not ours): "
            "saved_model_cli shows it"
        )
    raise NotFoundError(
        f"{place} is no run (config.yaml), no version (assets/{FILE_NAME}) and no store; give "
        "one of these, or a URL such as file:///DIR"
    )


def _text(inspection: Inspection) -> str:
    lines = [f"{inspection.kind} {inspection.place}"]
    lines += [f"  {name.replace('_', ' ')}: {value}" for name, value in inspection.facts.items()]
    width = max((len(table.name) for table in inspection.tables), default=0)
    width = max(width, len("table"))
    lines += ["", f"{'table':<{width}}  {'rows':>14}  {'dim':>5}  {'bytes':>10}"]
    for table in inspection.tables:
        dim = "" if table.dim is None else str(table.dim)
        lines.append(f"{table.name:<{width}}  {table.rows:>14,}  {dim:>5}  {_size(table):>10}")
    total = sum(table.rows for table in inspection.tables)
    lines.append(f"{'all':<{width}}  {total:>14,}")
    return "\n".join(lines)


def _size(table: InspectedTable) -> str:
    if table.bytes is None:
        return ""
    size = float(table.bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
