"""`StreamState`: what Redis knows of a stream, and whether entries were removed unread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

EntryId = tuple[int, int]
"""Milliseconds and sequence number."""

# At once, so that nothing is trimmed between the state and the entries.
READ_SCRIPT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return {redis.call('XINFO', 'STREAM', KEYS[1]),
        redis.call('XRANGE', KEYS[1], '(' .. ARGV[2], '+', 'COUNT', ARGV[1])}
"""


@dataclass(frozen=True)
class StreamState:
    """The state of a stream.

    Attributes:
        length: number of its entries.
        added: how many it ever had.
        first: id of the first entry; (0, 0): there is none.
        last: the newest id that it ever had.
        deleted: the newest id that XDEL removed.
    """

    length: int
    added: int
    first: EntryId
    last: EntryId
    deleted: EntryId

    @classmethod
    def of(cls, info: Sequence[Any]) -> StreamState:
        """Returns the state from the answer to XINFO STREAM of Redis 7."""
        values = dict(zip(info[::2], info[1::2], strict=True))
        return cls(
            length=int(values[b"length"]),
            added=int(values[b"entries-added"]),
            first=id_of(values[b"recorded-first-entry-id"].decode()),
            last=id_of(values[b"last-generated-id"].decode()),
            deleted=id_of(values[b"max-deleted-entry-id"].decode()),
        )

    @property
    def deleted_text(self) -> str:
        """The newest removed id, for an offset."""
        return f"{self.deleted[0]}-{self.deleted[1]}"

    def entries_behind(self, offset: dict[str, Any]) -> int | None:
        """Returns how many entries are behind an offset; None: unknown."""
        at = id_of(offset["id"])
        if at >= self.last or not self.length:
            return 0
        if self.first > at:
            return self.length
        return None if offset["count"] is None else max(0, self.added - offset["count"])

    def count_before(self, entries: Sequence[Any], offset: dict[str, Any], most: int) -> int | None:
        """Returns how many entries the stream ever had before those that were read.

        Args:
            entries: those that were read behind the offset.
            offset: see `redis_streams`.
            most: how many could be read; fewer are all that there are.
        """
        if len(entries) < most:
            return self.added - len(entries)
        if id_of(entries[0][0].decode()) == self.first:
            return self.added - self.length
        count: int | None = offset["count"]
        return count


def lost_entries(state: StreamState, offset: dict[str, Any]) -> str:
    """Returns which entries were removed before they were read, for a message; "": none."""
    at = id_of(offset["id"])
    if at == (0, 0) or state.last < at:
        return ""  # of entries that a failover lost, those that were read are trained
    if state.deleted > at and state.deleted > id_of(offset["deleted"]):
        return "entries were removed by XDEL before they were read,"
    if state.first <= at and state.length:
        return ""  # trimming goes on from the first entry
    count = offset["count"]
    if count is None:
        return ""
    if state.added < count:
        return "the stream was deleted and is a new one, so entries may be missing,"
    lost = state.added - count - state.length
    if lost > 0:
        several = f"{lost:,} entries were" if lost > 1 else "an entry was"
        return f"{several} trimmed before being read,"
    return ""


def at_start() -> dict[str, Any]:
    """Returns the offset before all entries."""
    return {"id": "0-0", "count": None, "deleted": "0-0"}


def id_of(text: str) -> EntryId:
    """Returns an id that can be compared."""
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


def seconds_of(text: str) -> float:
    """Returns when Redis received an entry, Unix seconds."""
    return int(text.partition("-")[0]) / 1000.0
