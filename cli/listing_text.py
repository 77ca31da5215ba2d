"""What `platform inspect` prints of a model's versions and of a base folder's models."""

from __future__ import annotations

from typing import Any

from hotrow.cli.inspection_text import aligned, size
from hotrow.inspection import Inspection


def listing(inspection: Inspection) -> list[str]:
    """Returns one line a version, or one a model."""
    heading = f"{inspection.kind} {inspection.place}"
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
