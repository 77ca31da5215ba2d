"""The store's part of `platform status`: generations, cuts, memory, nodes, readers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

from hotrow.cli.status_report import Bounds, Problem
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.holding import is_overruled
from hotrow.store.leases import exporter_of
from hotrow.store.process_identity import has_ended
from hotrow.store.readers import Reader, readers
from hotrow.store.record_format import UNREADABLE
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State
from hotrow.store.statistics import StoreStatistics
from hotrow.version_states import stored_bytes

# The bytes a row come from a sample of pages, for which each node is asked a hundred times.
_STATISTICS_SECONDS = 10.0


class StoreStatus:
    """Reads the state of a model in a store, again and again.

    Args:
        store: the store.
        model: its name there.
    """

    def __init__(self, store: RowStore, model: str) -> None:
        self._store = store
        self._model = model
        self._statistics: dict[str, StoreStatistics | None] = {}
        self._statistics_until = 0.0

    def read(self) -> dict[str, Any]:
        """Returns the state as JSON types.

        Raises:
            HotrowError: the store does not answer, or its records cannot be read.
        """
        records = self._store.records
        if time.monotonic() >= self._statistics_until:
            self._statistics.clear()
            self._statistics_until = time.monotonic() + _STATISTICS_SECONDS
        generations = Generations(records)
        live = generations.model(self._model).live
        exporter = exporter_of(records, self._model)
        if exporter is not None and has_ended(exporter.process):
            exporter = None
        now = records.now_ms()
        found = [self._generation(g, live, now) for g in generations.all(self._model)]
        return {
            "answers": True,
            "why": None,
            "url": self._store.url,
            "model": self._model,
            "live": live or None,
            "exporter": (
                None
                if exporter is None
                else {
                    "holder": exporter.holder,
                    "trainer": exporter.trainer or None,
                    "admin": exporter.admin or None,
                }
            ),
            "nodes": self._nodes(live),
            "generations": sorted(found, key=lambda facts: -int(facts["version"])),
        }

    def _generation(self, generation: Generation, live: str, now: int) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "generation": generation.generation,
            "version": generation.version,
            "state": str(generation.state),
            "live": generation.generation == live,
            "step": generation.step,
            "rows": sum(table.rows for table in generation.tables),
            "bytes": None,
            "cuts": [],
            "unfolded_cuts": 0,
            "unfolded_bytes": 0,
            "unfolded_seconds": None,
            "readers": [],
            "problem": None,
        }
        if generation.state is not State.COMPLETE:
            return facts
        try:
            cuts = cuts_of(self._store.records, generation)
            there = readers(self._store.records, generation.generation)
        except UNREADABLE as err:
            return {**facts, "problem": str(err)}
        unfolded = [cut for cut in cuts if not cut.folded]
        return {
            **facts,
            "bytes": stored_bytes(generation, self._statistics_of(generation)),
            "step": cuts[-1].step if cuts else generation.step,
            "cuts": [_cut(cut, now) for cut in reversed(cuts)],
            "unfolded_cuts": len(unfolded),
            "unfolded_bytes": sum(cut.bytes for cut in unfolded),
            "unfolded_seconds": _age(unfolded[0].committed_ms, now) if unfolded else None,
            "readers": [_reader(reader, cuts, now) for reader in there],
        }

    def _statistics_of(self, generation: Generation) -> StoreStatistics | None:
        name = generation.generation
        if name not in self._statistics:
            self._statistics[name] = self._store.statistics(generation)
        return self._statistics[name]

    def _nodes(self, live: str) -> list[dict[str, Any]]:
        found = self._statistics.get(live) or next(filter(None, self._statistics.values()), None)
        return [] if found is None else [dataclasses.asdict(node) for node in found.nodes]


def store_problems(part: dict[str, Any], bounds: Bounds) -> Iterator[Problem]:
    """Yields what is wrong with a store that answers."""
    if part["live"] is None:
        yield Problem("store", f"no version of {part['model']} is live; export one")
    for node in part["nodes"]:
        limit = node["limit_bytes"]
        if limit is not None and node["used_bytes"] > bounds.memory_share * limit:
            yield Problem(
                "store",
                f"{node['address']} uses {node['used_bytes'] / limit:.0%} of its maxmemory; give "
                "it more, or add nodes",
            )
    for generation in part["generations"]:
        if generation["problem"]:
            yield Problem("store", f"{generation['generation']}: {generation['problem']}")


def live_generation(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the live generation of a store that answers."""
    if part is None or not part["answers"]:
        return None
    return next((g for g in part["generations"] if g["live"]), None)


def behind(cut: int, cuts: Sequence[dict[str, Any]]) -> tuple[int, float | None]:
    """Returns by how many cuts a state is behind, and since when, in seconds.

    Args:
        cut: the version that is shown; 0: as exported.
        cuts: of the generation, as in this part.

    Returns:
        The seconds are those since the commit of the oldest cut that is missing; None: an older
        version of Hotrow did not record it. 0 if none is missing.
    """
    missing = [known for known in cuts if int(known["cut"], 16) > cut]
    if not missing:
        return 0, 0.0
    return len(missing), missing[-1]["age_seconds"]


def _cut(cut: CutRecord, now: int) -> dict[str, Any]:
    return {
        "cut": f"{cut.version:016x}",
        "step": cut.step,
        "rows": cut.rows,
        "removed": cut.removed,
        "bytes": cut.bytes,
        "dense": bool(cut.dense_places),
        "folded": cut.folded,
        "forced": cut.forced,
        "age_seconds": _age(cut.committed_ms, now),
        "event_age_seconds": _age(cut.event_ms, now),
    }


def _reader(reader: Reader, cuts: Sequence[CutRecord], now: int) -> dict[str, Any]:
    missing, seconds = behind(reader.cut, [_cut(cut, now) for cut in reversed(cuts)])
    return {
        "holder": reader.holder,
        "cut": f"{reader.cut:016x}",
        "behind_cuts": missing,
        "behind_seconds": seconds,
        "follows_cuts": reader.follows_cuts,
        "overruled": is_overruled(reader),
        "metrics": reader.metrics_url or None,
    }


def _age(then_ms: int, now_ms: int) -> float | None:
    """Returns seconds by the store's clock; None: the time is not known."""
    return max(0, now_ms - then_ms) / 1000 if then_ms else None
