"""The versions of cuts that a store and its readers know."""

from __future__ import annotations

from hotrow.store.readers import readers
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation


def newest_anywhere(store: RowStore, generation: Generation) -> int:
    """Returns the greatest version of a cut that shards, or servers with their leases, know.

    The records of a store that went back in time may know an earlier one only.
    """
    served = [r.cut for r in readers(store.records, generation.generation) if r.identity]
    return max(int(store.watermarks(generation).max()), *served, 0)
