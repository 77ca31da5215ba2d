"""The rows of a table as safetensors files of bounded size.

Each file holds `keys` int64 [N], `lines` float32 [N, D + S] and `clocks` uint32 [N].
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hotrow.errors import DataLossError, FailedPreconditionError

if TYPE_CHECKING:
    from hotrow.ops.table import Table

FILE_BYTES = 64 << 20
_KEY_AND_CLOCK_BYTES = 12


def write_table(table: Table, directory: Path) -> dict[str, Any]:
    """Writes all rows of a table and returns what `read_table` needs, as JSON values.

    Memory beside the table itself stays below two files' size.

    Args:
        table: nobody trains it meanwhile.
        directory: gets the files `<table>-<number>.safetensors`.
    """
    rows_a_file = max(1, FILE_BYTES // (4 * table.line_width + _KEY_AND_CLOCK_BYTES))
    names, rows = [], 0
    for number, (keys, lines, clocks) in enumerate(table.export_batches(rows_a_file)):
        name = f"{quote(table.name, safe='')}-{number:05d}.safetensors"
        save_file({"keys": keys, "lines": lines, "clocks": clocks}, directory / name)
        names.append(name)
        rows += len(keys)
    return {
        "files": names,
        "rows": rows,
        "dim": table.dim,
        "line_width": table.line_width,
        "step": table.step,
        "digest": table.digest(),
    }


def read_table(table: Table, directory: Path, entry: dict[str, Any]) -> None:
    """Replaces the rows of a table by the rows that `write_table` wrote.

    Args:
        table: of the same name, dim and optimizer.
        directory: where the files are.
        entry: what `write_table` returned.

    Raises:
        FailedPreconditionError: the widths differ, so the configuration is another one.
        DataLossError: a file is missing or damaged, or the rows are not those written.
    """
    written, own = (entry["dim"], entry["line_width"]), (table.dim, table.line_width)
    if written != own:
        raise FailedPreconditionError(
            f"table {table.name!r} was written with dim {written[0]} and lines of {written[1]} "
            f"floats, the model has {own[0]} and {own[1]}; use the configuration of the run"
        )
    table.clear()
    for name in entry["files"]:
        try:
            arrays = load_file(directory / name)
            table.import_rows(arrays["keys"], arrays["lines"], arrays["clocks"])
        except (OSError, SafetensorError, KeyError) as err:
            raise DataLossError(f"{directory / name} cannot be read: {err}") from err
    table.step = entry["step"]
    if table.digest() != entry["digest"]:
        raise DataLossError(
            f"{directory}: the rows of table {table.name!r} are not those that were written"
        )
