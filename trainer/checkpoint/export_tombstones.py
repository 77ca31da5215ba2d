"""Tombstones of a run's tables: kept once the run was exported, until exports have taken them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import of_first
from hotrow.trainer.checkpoint.exported import exported_clocks, exported_steps

if TYPE_CHECKING:
    from hotrow.ops.table import Table


class ExportTombstones:
    """Looks, from time to time, at which checkpoints of a run other processes have exported.

    Only exports read tombstones; without one, tables keep none. An export that lacks some, for
    instance of keys that expired before this process noticed the first export, compares the keys
    with those of the exported checkpoint; without that checkpoint it is refused.
    """

    def __init__(
        self,
        checkpoints: Path,
        tables: Mapping[str, Table],
        report: Callable[[str], None],
        ranks: Ranks,
        source: Path | None = None,
    ) -> None:
        """Stores its arguments.

        Args:
            checkpoints: the folder of the run's checkpoints.
            tables: the tables of the run by name.
            report: called with a line for a table that has dropped tombstones.
            ranks: the ranks that train the model.
            source: the folder of checkpoints of the run that this one started from; its exports
                count until this run has some.
        """
        self._checkpoints = checkpoints
        self._source = source
        self._tables = {
            name: table for name, table in tables.items() if table.config.expiry is not None
        }
        self._report = report
        self._ranks = ranks
        self._reported: set[str] = set()

    def update(self) -> None:
        """Keeps tombstones if the run was exported, and drops those that exports have taken.

        A collective, if the model has tables with expiry.
        """
        if not self._tables:
            return
        own = self._exported() if self._ranks.is_first else None
        clocks: dict[str, int] | None = of_first(self._ranks, "exports of the run", own)
        if clocks is None:
            return
        for name, table in self._tables.items():
            table.keep_tombstones()
            if name in clocks:
                table.forget_tombstones(clocks[name])
        self._report_dropped()

    def _exported(self) -> dict[str, int] | None:
        """Returns the clocks that exports have taken; None: the run was not exported."""
        clocks = exported_clocks(self._checkpoints)
        if clocks is None and self._source is not None and exported_steps(self._source):
            return {}
        return clocks

    def _report_dropped(self) -> None:
        """Reports tables that dropped tombstones because too many keys expired, each once."""
        for name, table in self._tables.items():
            expiry = table.config.expiry
            if name in self._reported or not table.statistics()["tombstones_dropped"]:
                continue
            assert expiry is not None
            self._reported.add(name)
            self._report(
                f"warning: more than {expiry.tombstones} keys of table {name!r} expired since the "
                "last export, and the table dropped the older half of their tombstones: the next "
                "export must be a full one; export more often, or raise the table's "
                "expiry.tombstones"
            )
