"""`RedisPartitions`: Redis Streams; each stream is a partition.

An offset is `{"id", "count", "deleted"}`: the last entry that was read, how many entries the stream
ever had up to it (null: unknown), and the newest entry that had been removed by XDEL then. The
second and the third show whether entries were trimmed or removed before they were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from redis.crc import key_slot

from hotrow.errors import DataLossError, HotrowError, UnavailableError
from hotrow.store.access import StoreAccess
from hotrow.store.redis.client import RedisClient
from hotrow.store.url import StoreUrl
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offset, Offsets, Polled
from hotrow.trainer.online.records import Records
from hotrow.trainer.online.source import Events, Lag
from hotrow.trainer.online.sources.stream_state import (
    READ_SCRIPT,
    StreamState,
    at_start,
    id_of,
    lost_entries,
    seconds_of,
)

FIELD = b"event"
_ENTRIES = 2048
_PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 0.005


class RedisPartitions:
    """Reads streams from the entries behind a position; a consumer group only shows how far."""

    def __init__(
        self,
        url: StoreUrl,
        access: StoreAccess,
        streams: Sequence[str],
        group: str | None,
        fails_on_gaps: bool,
        decoder: Decoder,
        report: Callable[[str], None],
    ) -> None:
        """Connects.

        Args:
            url: of Redis.
            access: its credentials.
            streams: keys of the streams; they may appear later.
            group: consumer group to move behind what checkpoints have; None: none.
            fails_on_gaps: whether entries that were removed unread are an error; otherwise they are
                reported.
            decoder: of the run.
            report: called with a line for who runs the trainer.

        Raises:
            UnavailableError: no server answers.
            PermissionDeniedError: the user is refused.
            InvalidArgumentError: the URL does not fit the server.
        """
        self._client = RedisClient(url, access, _PATIENCE_SECONDS)
        self._url = url
        self._slots = {stream: key_slot(stream.encode()) for stream in streams}
        self._group = group
        self._fails_on_gaps = fails_on_gaps
        self._decoder = decoder
        self._report = report
        self._is_away = False
        self._behind: set[str] = set()
        self._grouped = group is None
        self._saved: Mapping[str, Offset] = {}

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """See `Partitions`; while Redis does not answer, there are no events."""
        deadline = time.monotonic() + wait_seconds
        wanted = [stream for stream in self._slots if stream not in busy]
        while True:
            try:
                self._move_group()
                chunks = {}
                for stream in wanted:
                    chunk = self._next(stream, offsets.get(stream) or at_start())
                    if chunk is not None:
                        chunks[stream] = chunk
                self._note_answer()
                left = deadline - time.monotonic()
                if chunks or left <= 0 or not wanted:
                    return Polled(chunks)
                self._wait(wanted, offsets, left)
            except UnavailableError as err:
                self._note_silence(err)
                left = deadline - time.monotonic()
                if left <= 0:
                    return Polled(away=True)
                time.sleep(min(left, _PATIENCE_SECONDS))

    def no_events(self) -> Events:
        """See `Partitions`."""
        return self._decoder.no_events()

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """Returns the number of entries behind the offsets, and the age of the first."""
        events: int | None = 0
        oldest = []
        for stream, slot in self._slots.items():
            offset = offsets.get(stream) or at_start()
            answer = self._client.call(slot, "EVAL_RO", READ_SCRIPT, 1, stream, 1, offset["id"])
            if answer is None:
                continue
            state = StreamState.of(answer[0])
            oldest += [seconds_of(entry[0].decode()) for entry in answer[1]]
            left = state.entries_behind(offset)
            events = None if events is None or left is None else events + left
        return Lag(events, max(0.0, time.time() - min(oldest)) if oldest else 0.0)

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """Moves the consumer group, soon, in the thread that reads."""
        self._saved = offsets

    def close(self) -> None:
        """Moves the consumer group, if that works at once, and closes the connections."""
        try:
            if not self._is_away:
                self._move_group()
        except HotrowError:
            pass  # the group shows too much lag until the next run
        finally:
            self._client.close()

    def _next(self, stream: str, offset: dict[str, Any]) -> Chunk | None:
        """Returns the next entries of a stream; None: there is none."""
        answer = self._client.call(
            self._slots[stream], "EVAL_RO", READ_SCRIPT, 1, stream, _ENTRIES, offset["id"]
        )
        if answer is None:
            return None
        info, entries = answer
        state = StreamState.of(info)
        self._check_newest(stream, state, offset)
        lost = lost_entries(state, offset)
        if lost:
            self._gap(stream, offset, lost)
            offset = offset | {"count": None}
            if not entries:  # the gap is behind the new offset, so that it is reported once
                last = f"{state.last[0]}-{state.last[1]}"
                end = {"id": last, "count": state.added, "deleted": state.deleted_text}
                return Chunk(self.no_events(), (), end)
        if not entries:
            return None
        count = state.count_before(entries, offset, _ENTRIES)
        return self._decoded(stream, entries, count, state.deleted_text)

    def _decoded(self, stream: str, entries: list[Any], count: int | None, deleted: str) -> Chunk:
        ids = [entry[0].decode() for entry in entries]
        payloads = [_payload(entry[1]) for entry in entries]
        records = Records(
            payloads,
            np.array([seconds_of(one) for one in ids]),
            lambda index: {"stream": stream, "id": ids[index]},
        )

        def offset_behind(index: int) -> dict[str, Any]:
            behind = None if count is None else count + index + 1
            return {"id": ids[index], "count": behind, "deleted": deleted}

        decoded = self._decoder.decode(records)
        behind = Offsets(decoded.kept.tolist(), offset_behind)
        return Chunk(decoded.events, behind, offset_behind(len(ids) - 1))

    def _wait(self, wanted: list[str], offsets: Mapping[str, Offset], seconds: float) -> None:
        """Waits for an entry; at once if another stream than those of one slot may have it."""
        slots = {self._slots[stream] for stream in wanted}
        if len(slots) > 1:
            time.sleep(min(seconds, _LOOK_SECONDS))
            return
        ids = [(offsets.get(stream) or at_start())["id"] for stream in wanted]
        block = max(1, int(min(seconds, _PATIENCE_SECONDS) * 1000))
        command = ["XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *wanted, *ids]
        self._client.call(slots.pop(), *command)

    def _gap(self, stream: str, offset: dict[str, Any], lost: str) -> None:
        what = f"online.source {self._url}: stream {stream!r}: {lost} behind {offset['id']}"
        if self._fails_on_gaps:
            raise DataLossError(
                f"{what}; train less late, or trim less (XADD ... MAXLEN, XTRIM); to go on without "
                "them, add gaps=report to the URL"
            )
        self._report(f"{what}; gaps=report goes on without them")

    def _check_newest(self, stream: str, state: StreamState, offset: dict[str, Any]) -> None:
        """Reports a stream that does not have what was read; new ids are larger, or not read."""
        if state.last >= id_of(offset["id"]):
            self._behind.discard(stream)
        elif stream not in self._behind:
            self._behind.add(stream)
            self._report(
                f"online.source {self._url}: stream {stream!r} has no entries up to "
                f"{offset['id']}, which was read: a failover lost them, or it is an older copy; "
                "entries with smaller ids are not read"
            )

    def _move_group(self) -> None:
        """Moves the consumer group to the newest saved offsets; creates it at first."""
        saved, self._saved = self._saved, {}
        if self._group is None:
            return
        try:
            for stream, slot in self._slots.items():
                if not self._grouped:
                    self._create_group(stream, slot)
                offset = saved.get(stream)
                if offset is not None:
                    read = [] if offset["count"] is None else ["ENTRIESREAD", offset["count"]]
                    self._client.call(
                        slot, "XGROUP", "SETID", stream, self._group, offset["id"], *read
                    )
            self._grouped = True
        except UnavailableError:
            self._saved = self._saved or saved
            raise
        except HotrowError as err:  # nothing depends on the group
            self._grouped = "NOGROUP" not in str(err) and "requires the key" not in str(err)
            if self._grouped:
                self._group = None
                self._report(f"the consumer group is not moved from now on: {err}")

    def _create_group(self, stream: str, slot: int) -> None:
        try:
            group = self._group or ""
            self._client.call(slot, "XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        except HotrowError as err:
            if "BUSYGROUP" not in str(err):
                raise

    def _note_silence(self, err: UnavailableError) -> None:
        if not self._is_away:
            self._is_away = True
            self._report(f"online.source: no events while Redis does not answer: {err}")

    def _note_answer(self) -> None:
        if self._is_away:
            self._is_away = False
            self._report(f"online.source {self._url} answers again")


def _payload(fields: list[bytes]) -> bytes:
    """Returns the event of an entry; of one without, its fields, which are no event."""
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    return values.get(FIELD, b" ".join(fields))
