"""What `platform inspect` prints of versions, of a base folder's models, and of a store."""

from __future__ import annotations

from typing import Any

from hotrow.cli.inspection_text import aligned, size
from hotrow.inspection import Inspection


def listing(inspection: Inspection) -> list[str]:
    """Returns one line a version, one a model, or a block of lines a generation of a store."""
    heading = f"{inspection.kind} {inspection.place}"
    if inspection.kind == "store":
        blocks = [_generation(of, inspection) for of in inspection.facts["generations"]]
        if bad := inspection.facts["unreadable"]:
            blocks.append([f"unreadable: {record['reason']}" for record in bad])
        return [heading, *(line for block in blocks for line in ("", *block))]
    if inspection.kind == "base":
        cells = [["model", "versions", "newest"]]
        for model in inspection.facts["models"]:
            numbers = model["versions"]
            cells.append([model["name"], str(len(numbers)), str(numbers[-1])])
        return [heading, "", *aligned(cells)]
    cells = [["version", "step", "export", "rows", "live", "size", "exported at", "from"]]
    versions = inspection.facts["versions"]
    cells += [_version(version) for version in versions]
    problems = [f"version {v['version']}: {v['problem']}" for v in versions if v["problem"]]
    return [heading, "", *aligned(cells), *(["", *problems] if problems else [])]


def _generation(of: dict[str, Any], inspection: Inspection) -> list[str]:
    name = of["generation"]
    lines = [
        f"generation {name} of model {of['model']}, version {of['version']}",
        f"  {of['state']}, {'live' if of['live'] else 'not live'}, used by {of['users']} servers",
    ]
    for cut in of["cuts"]:
        state = "folded" if cut["folded"] else "staged"
        lines.append(
            f"  cut {cut['version']}: step {cut['step']}, {cut['rows']:,} rows, "
            f"{cut['removed']:,} removed, {state}"
        )
    for node in of["nodes"]:
        used = size(node["used_bytes"])
        limit = f" of {size(node['limit_bytes'])}" if node["limit_bytes"] else ""
        lines.append(f"  node {node['address']}: {node['shards']} shards, {used}{limit} used")
    cells = [["table", "rows", "dim", "bytes", "in Redis"]]
    for table in inspection.tables:
        generation, _, own = table.name.partition("/")
        if generation == name:
            a_row = of["bytes_a_row"].get(own)
            dim = "" if table.dim is None else str(table.dim)
            taken = "" if a_row is None else f"{a_row:g} B a row"
            cells.append([own, f"{table.rows:,}", dim, size(table.bytes), taken])
    cells.append(["all", f"{of['rows']:,}", "", "", ""])
    if not of["bytes_a_row"]:
        cells = [row[:-1] for row in cells]
    return lines + ["  " + line for line in aligned(cells)]


def _version(version: dict[str, Any]) -> list[str]:
    step = version["step"]
    export = version["export"] or ""
    if export == "incremental":
        export = f"incremental since {version['exported_step']}"
    live = {True: "yes", False: "no", None: "-"}[version["live"]]
    rows = version["rows"]
    return [
        str(version["version"]),
        "" if step is None else f"{step}",
        export,
        "" if rows is None else f"{rows:,}",
        live,
        size(version["bytes"]),
        version["created"] or "",
        version["checkpoint"] or "",
    ]
