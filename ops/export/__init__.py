"""Writes a model with embedding layers as a version directory.

`<base>/<name>/<version>/` holds `saved_model.pb`, `variables/`, `assets/hotrow_manifest.json`,
`rows/` (the embedded store, unless another store is named) and `manifest.json` with the checksum of
every file. One rename makes the complete directory visible.
"""

from __future__ import annotations

from hotrow.ops.export.changed_rows import KeysBefore
from hotrow.ops.export.changes import (
    WAIT_SECONDS,
    ExportedChanges,
    check_change_arguments,
    find_version,
    write_changes,
)
from hotrow.ops.export.keras_model import export_changes, export_model
from hotrow.ops.export.row_options import RowOptions
from hotrow.ops.export.signatures import Signature
from hotrow.ops.export.version import check_arguments, write_version
from hotrow.version_folder import next_version

__all__ = [
    "WAIT_SECONDS",
    "ExportedChanges",
    "KeysBefore",
    "RowOptions",
    "Signature",
    "check_arguments",
    "check_change_arguments",
    "export_changes",
    "export_model",
    "find_version",
    "next_version",
    "write_changes",
    "write_version",
]
