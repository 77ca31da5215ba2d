"""`open_stream`: batches of labelled events from the source of a run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess, read_access
from hotrow.trainer.data.arrow_rows import join_rows
from hotrow.trainer.data.batch import Batch
from hotrow.trainer.data.encode import encode
from hotrow.trainer.data.raw_rows import raw_batch
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.event_columns import columns_of_events
from hotrow.trainer.online.join import JoinedRows
from hotrow.trainer.online.labelled_rows import LabelledRows, UnjoinedRows, newest_of
from hotrow.trainer.online.lag_watch import LagWatch
from hotrow.trainer.online.source import EventStream, Lag, Position, Source, TrainingEvents
from hotrow.trainer.online.sources.opening import open_source
from hotrow.trainer.online.watermark import Watermark

AHEAD_BATCHES = 4
"""How many batches are read before they are needed."""

_LOOK_SECONDS = 0.05
_PAUSE_SECONDS = 0.02
"""Between two reads for one batch, when events come one by one."""


def open_stream(
    config: RunConfig,
    dead_letters: Path,
    position: Position,
    report: Callable[[str], None],
    access: StoreAccess | None = None,
    *,
    may_be_away: bool = False,
) -> EventStream:
    """Opens the source of `config.online.source`; a thread begins to read.

    Args:
        config: the run's configuration.
        dead_letters: file for bad events; its folder exists.
        position: of a batch of an earlier stream of the run; {}: the beginning.
        report: called with a line for who runs the trainer, from any thread.
        access: credentials of Redis; None: those of the environment. Files that the URL names come
            first.
        may_be_away: whether a source that does not answer yet has no events until it does.

    Raises:
        InvalidArgumentError: there is no source, or its URL is not legal, or the columns do not
            fit the format of events.
        NotFoundError, DataError: a file cannot be opened.
        DataLossError: the position does not fit the source.
        UnavailableError: the source does not answer.
    """
    if config.online.source is None:
        raise InvalidArgumentError(
            "online.source: there is none; give the URL of the events, such as file:/var/log/clicks"
        )
    letters = DeadLetters(dead_letters, config.online.dead_letter_bytes, report)
    decoder = Decoder(config, letters, report)
    access = access or read_access()
    source = open_source(config, decoder, letters, access, report, may_be_away=may_be_away)
    try:
        watermark = Watermark(config.online, letters)
        rows: LabelledRows
        if config.online.join is None:
            rows = UnjoinedRows(source, watermark, position)
        else:
            rows = JoinedRows(
                source,
                decoder.columns,
                config.online,
                watermark,
                letters,
                dead_letters.with_name("waiting_rows"),
                position,
            )
        return _Stream(config, source, decoder, letters, watermark, rows, report)
    except BaseException:
        source.close()
        raise


def event_encoder(config: RunConfig) -> Callable[[pa.RecordBatch], Batch]:
    """Returns a function that encodes rows as `EventStream.encode` does, without a source.

    Raises:
        InvalidArgumentError: the format of events has no such columns.
    """
    columns = columns_of_events(config)

    def encoded(rows: pa.RecordBatch) -> Batch:
        return encode(raw_batch(rows, columns.columns, columns.label), config.features)

    return encoded


class _Stream:
    """See `EventStream`."""

    def __init__(
        self,
        config: RunConfig,
        source: Source,
        decoder: Decoder,
        letters: DeadLetters,
        watermark: Watermark,
        rows: LabelledRows,
        report: Callable[[str], None],
    ) -> None:
        self._config = config
        self._encode = event_encoder(config)
        self._source = source
        self._columns = decoder.columns
        self._letters = letters
        self._watermark = watermark
        self._rows = rows
        self._report = report
        self._reported_bad = 0
        self._lag = LagWatch(source)
        position = rows.position()
        nothing = decoder.no_events().rows
        names = [name for name in nothing.schema.names if name != self._columns.key]
        self._none = nothing.select(names)
        self._last = TrainingEvents(self._none, newest_of(position), position)
        self._queue: queue.Queue[TrainingEvents | BaseException | None] = queue.Queue(AHEAD_BATCHES)
        self._end: BaseException | None = None
        self._has_ended = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hotrow-events", daemon=True)
        self._thread.start()

    def next(self, wait_seconds: float) -> TrainingEvents | None:
        """See `EventStream`.

        Raises:
            DataLossError, UnavailableError, DataError: the source cannot be read further.
        """
        if self._end is not None:
            raise self._end
        if self._has_ended:
            return None
        try:
            found = self._queue.get(timeout=max(0.0, wait_seconds))
        except queue.Empty:
            return TrainingEvents(self._none, self._last.newest, self._last.position)
        if isinstance(found, BaseException):
            self._end = found
            raise found
        if found is None:
            self._has_ended = True
            return None
        self._last = found
        return found

    def encode(self, rows: pa.RecordBatch) -> Batch:
        """See `EventStream`."""
        return self._encode(rows)

    def lag(self) -> Lag:
        """See `EventStream`."""
        return self._lag.lag(self._last.position["source"])

    def counts(self) -> dict[str, int]:
        """See `EventStream`."""
        return self._rows.counts() | {
            "bad": self._letters.count("bad"),
            "late": self._watermark.late,
        }

    def note_saved(self, position: Position) -> None:
        """See `EventStream`."""
        # What a join reads again must not be trimmed.
        again = position.get("join", position)
        self._source.note_saved(again["source"])

    def close(self) -> None:
        """See `EventStream`."""
        self._stop.set()
        self._letters.give_up()
        self._thread.join()
        self._rows.close()
        self._lag.close()
        self._source.close()
        self._letters.close()

    def _run(self) -> None:
        """Reads batches until the source ends, fails, or is closed."""
        try:
            while not self._stop.is_set():
                batch, has_ended = self._read_batch()
                if batch is not None:
                    self._put(batch)
                if has_ended:
                    self._put(None)
                    return
        except BaseException as err:  # the caller of `next` gets it
            self._put(err)

    def _read_batch(self) -> tuple[TrainingEvents | None, bool]:
        """Returns the next batch, if there is one before the source ends; and whether it does."""
        size = self._config.data.batch_size
        pieces: list[pa.RecordBatch] = []
        rows = 0
        due = 0.0
        has_ended = False
        while rows < size and not self._stop.is_set():
            now = time.monotonic()
            if rows and now >= due and self._queue.empty():
                break  # the batches in the queue are trained before it anyway
            wait = _LOOK_SECONDS if not rows or now >= due else min(_LOOK_SECONDS, due - now)
            found = self._rows.read(size - rows, wait)
            self._report_bad()
            if found is None:
                has_ended = True
                break
            if found.num_rows:
                if not rows:
                    due = time.monotonic() + self._config.online.max_batch_seconds
                pieces.append(found)
                rows += found.num_rows
                if rows < size:  # there were no more; reading few costs as much as reading many
                    self._stop.wait(max(0.0, min(_PAUSE_SECONDS, due - time.monotonic())))
        if not rows:
            return None, has_ended
        position = self._rows.position()
        return TrainingEvents(join_rows(pieces), newest_of(position), position), has_ended

    def _put(self, item: TrainingEvents | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                continue

    def _report_bad(self) -> None:
        """Reports bad events: the first, and whenever there are twice as many."""
        count = self._letters.count("bad")
        if count and count >= 2 * self._reported_bad:
            self._reported_bad = count
            several = f"{count:,} events are" if count > 1 else "an event is"
            self._report(f"{several} bad and not trained; see {self._letters.path}")
