"""Compares restored tables with the sizes and digests of their checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotrow.errors import DataLossError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import agreed, gathered
from hotrow.trainer.checkpoint.parts import COLUMN, REPLICATED, sum_of_digests
from hotrow.trainer.checkpoint.row_digests import RowDigests, WrittenDigest, written_digests
from hotrow.trainer.checkpoint.rows import digest_in_files
from hotrow.trainer.checkpoint.stored import StoredCheckpoint

if TYPE_CHECKING:
    from hotrow.ops.table import Table

Digests = list[str | None]


def check_rows(chain: list[StoredCheckpoint], tables: dict[str, Table], ranks: Ranks) -> None:
    """Checks that the tables of all ranks have the written rows. A collective.

    If no rank has all columns of a digest, the rows in the files are compared with it.

    Args:
        chain: the checkpoint after those that it builds on.
        tables: restored from it.
        ranks: the ranks that train the tables.

    Raises:
        DataLossError: a table has other rows.
    """
    newest = chain[-1]
    written = {name: written_digests(name, newest.table(name)) for name in tables}
    own = {name: [t.size, _digests_of(t, written[name])] for name, t in tables.items()}
    reports = gathered(ranks, "sizes of tables", own) if ranks.size > 1 else [own]
    in_files: list[tuple[str, WrittenDigest]] = []
    for name, table in tables.items():
        sizes, digests = zip(*(one[name] for one in reports), strict=True)
        everywhere = ranks.size > 1 and table.config.sharding in (COLUMN, REPLICATED)
        found = sizes[0] if everywhere and len(set(sizes)) == 1 else sum(sizes)
        if found != newest.table(name)["size"]:
            raise DataLossError(
                f"{newest.path}: the rows of table {name!r} are not those that were written: "
                f"{found:,} instead of {newest.table(name)['size']:,}"
            )
        for number, one in enumerate(written[name]):
            values = [of_rank[number] for of_rank in digests]
            for value in _known(values, everywhere):
                _compare(newest, one, value)
            if one.digest is not None and values == [None] * len(values):
                in_files.append((name, one))
    if in_files:
        agreed(ranks, "digests of tables", lambda: _check_files(chain, in_files, ranks))


def _digests_of(table: Table, written: Sequence[WrittenDigest]) -> Digests:
    """Returns the digest of this rank's rows for each written one; None: it lacks columns."""
    digests: Digests = [None] * len(written)
    parts = []
    for number, one in enumerate(written):
        if one.digest is None or not _within(one.columns, table.columns):
            continue
        if one.columns == table.columns:
            digests[number] = table.digest()
        else:
            parts.append(number)
    if parts:
        groups = [written[number].columns for number in parts]
        sums = RowDigests(groups, table.line_layout, table.columns.start)
        for rows in table.export_batches():
            sums.add(rows)
        for number, digest in zip(parts, sums.sums, strict=True):
            digests[number] = digest
    return digests


def _within(columns: range, others: range) -> bool:
    return others.start <= columns.start and columns.stop <= others.stop


def _known(values: Digests, everywhere: bool) -> Digests:
    """Returns the digests to compare: of every rank that has all the rows, or the ranks' sum."""
    known = [value for value in values if value is not None]
    return list(known) if everywhere or not known else [sum_of_digests(known)]


def _check_files(
    chain: list[StoredCheckpoint], digests: list[tuple[str, WrittenDigest]], ranks: Ranks
) -> None:
    """Checks this rank's share of digests against the rows in the files."""
    for table, one in digests[ranks.rank :: ranks.size]:
        _compare(chain[-1], one, digest_in_files(chain, table, one.columns))


def _compare(checkpoint: StoredCheckpoint, written: WrittenDigest, found: str | None) -> None:
    if found != written.digest:
        raise DataLossError(
            f"{checkpoint.path}: {written.what} are not those that were written: digest {found} "
            f"instead of {written.digest}"
        )
