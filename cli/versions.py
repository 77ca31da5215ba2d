"""`platform versions`: what servers show of models, and what they can go back to."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click

from hotrow.cli.inspection_text import aligned, size
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.store import open_store
from hotrow.version_states import states_in_folder, states_in_store


@click.command("versions")
@click.argument("place", metavar="DIR|STORE_URL")
@click.option("--store", metavar="URL", help="Another URL of the versions' store.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write it as JSON, too; - is standard output, and nothing else.",
)
@store_flags
def command(place: str, store: str | None, json_file: str | None, **access: str) -> None:
    """List the versions of models: what is live, what can be gone back to, who reads it, bytes.

    DIR is BASE_DIR or BASE_DIR/NAME. A version is "newest" if servers with the default policy
    choose it, and "live" if the store calls its rows so. Below it are its incremental exports
    (cuts) and its rows as exported, with the bytes that are kept for going back to each.

    \b
    Examples:
      platform versions models
      platform versions redis+cluster://10.0.0.1 --json -
    """  # noqa: D301 (click wants a real \b)
    entry = take_store_access(access)
    if "://" in place:
        with contextlib.closing(open_store(store or place, entry, option="store")) as opened:
            models = states_in_store(opened)
    else:
        models = states_in_folder(Path(place), entry, store)
    content = json.dumps({"kind": "versions", "place": place, "models": models}, indent=1)
    if json_file == "-":
        click.echo(content)
        return
    lines = [line for model in models for line in ("", *_model(model))]
    click.echo("\n".join(lines[1:] or [f"{place} has no model"]))
    if json_file is not None:
        Path(json_file).write_text(content + "\n", encoding="utf-8")


def _model(model: dict[str, Any]) -> list[str]:
    where = f" in {model['directory']}" if model["directory"] else ""
    heads = ["version", "step", "state", "go back", "readers", "rows", "on disk", "in store"]
    versions = model["versions"]
    lines = [f"model {model['model']}{where}", ""]
    lines += aligned([heads, *(row for v in versions for row in _rows(v))])
    for version in versions:
        if version["problem"]:
            lines.append(f"version {version['version']}: {version['problem']}")
        for reader in version["readers"]:
            kind = "" if reader["follows_cuts"] else ", takes no cuts (hotrow.bind)"
            shows = "as exported" if not int(reader["cut"], 16) else f"cut {reader['cut']}"
            lines.append(
                f"version {version['version']}: read by {reader['holder']}, {shows}{kind}"
                f"{_held_up(reader)}"
            )
    return lines


def _held_up(reader: dict[str, Any]) -> str:
    """Returns what a reader keeps from being folded, or that it no longer does."""
    if reader["overruled"]:
        return "; overruled by an export: it fails where rows have changed, until it begins again"
    if (holds := reader["holds"]) is None:
        return ""
    since = "" if holds["since"] is None else f" since {holds['since']} ({holds['seconds']:,} s)"
    cuts = "1 cut" if holds["cuts"] == 1 else f"{holds['cuts']} cuts"
    return f"; keeps {cuts} ({size(holds['bytes'])}) from being folded{since}"


def _rows(version: dict[str, Any]) -> list[list[str]]:
    """Returns the cells of a version and of its cuts."""
    states = [
        name
        for name, holds in (
            ("newest", version["newest"]),
            ("live", version["live"]),
            ("set aside", version["set_aside"]),
            (version["state"], version["state"] not in (None, "complete")),
        )
        if holds
    ]
    rows = [
        [
            str(version["version"]),
            _number(version["step"]),
            ", ".join(states),
            "yes" if version["can_go_back"] else "-",
            str(len(version["readers"])),
            _number(version["rows"]),
            size(version["disk_bytes"]),
            size(version["store_bytes"]),
        ]
    ]
    for cut in version["cuts"]:
        state = "newest" if cut["newest"] else ""
        if not cut["folded"]:
            state = ", ".join(filter(None, [state, "staged"]))
        rows.append(
            [
                f"  {cut['cut']}",
                _number(cut["step"]),
                state,
                "yes" if cut["can_go_back"] else "-",
                "",
                _number(cut["rows"]),
                "",
                size(cut["bytes"]) if cut["can_go_back"] else "",
            ]
        )
    return rows


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
