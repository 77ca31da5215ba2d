"""Hands the batches of an event stream to all ranks. Rank 0 reads; each rank trains its part.

n events of a batch, b of a rank's part.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import agreed
from hotrow.trainer.batch_feed import Batch
from hotrow.trainer.data import Batch as EncodedBatch
from hotrow.trainer.data import Part
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.online.source import EventStream, Position, TrainingEvents
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.step_report import StepReport, exchange
from hotrow.trainer.stop_request import StopRequest

_WAIT_SECONDS = 0.05
"""How long a tick without events takes: cuts, checkpoints and signals are seen to in between."""

Encode = Callable[[pa.RecordBatch], EncodedBatch]
Orders = dict[str, Any]
"""What rank 0 decided for all ranks at a tick, as JSON values."""


@dataclass(frozen=True)
class Tick:
    """A batch of events, or a moment without any.

    Attributes:
        batch: this rank's part of the batch; None: no events came.
        newest: time of the newest event so far, Unix seconds; NaN before the first.
        position: where the stream goes on.
        orders: what rank 0 decided.
    """

    batch: Batch | None
    newest: float
    position: Position
    orders: Orders = field(default_factory=dict)


class OnlineFeed:
    """The ticks of a stream, with what ranks exchange in between (`BatchFeed`).

    Args:
        stream: on rank 0; None on others.
        encode: makes a batch of rows, as `EventStream.encode`; on all ranks.
        ranks: all of them make the same calls.
    """

    def __init__(self, stream: EventStream | None, encode: Encode, ranks: Ranks) -> None:
        self._encode = encode
        self._ranks = ranks
        self._ticks: Iterator[Any] = iter(())
        self._open = contextlib.ExitStack()
        if stream is None:
            return
        make = self._encoded if ranks.size == 1 else self._read
        ticks = read_ahead(lambda: make(stream))
        self._ticks = self._open.enter_context(contextlib.closing(ticks))

    def next(self, orders: Callable[[], Orders]) -> Tick | None:
        """Returns the next tick; None: the source has ended. A collective.

        Args:
            orders: called on rank 0 once the tick is there.

        Raises:
            HotrowError: events cannot be read; on all ranks.
        """
        if self._ranks.size == 1:
            tick: Tick | None = next(self._ticks, None)
            if tick is None:
                return None
            return Tick(tick.batch, tick.newest, tick.position, orders())
        read: list[TrainingEvents | None] = []

        def read_one() -> None:
            if self._ranks.is_first:
                read.append(next(self._ticks, None))

        agreed(self._ranks, "events", read_one)
        message = None
        if self._ranks.is_first:
            message = _message(read[0], orders() if read[0] is not None else {})
        return self._own_part(self._ranks.broadcast(message, "events"))

    def close(self) -> None:
        """Ends reading ahead."""
        self._open.close()

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Returns a step as all ranks report it; see `BatchFeed`."""
        return own if self._ranks.size == 1 else exchange(self._ranks, own, step)

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the signal on which all ranks stop after a step, or None."""
        return request.number if self._ranks.size == 1 else done.stop

    def _read(self, stream: EventStream) -> Iterator[TrainingEvents]:
        while True:
            events = stream.next(_WAIT_SECONDS)
            if events is None:
                return
            yield events

    def _encoded(self, stream: EventStream) -> Iterator[Tick]:
        # In the reading thread, so that the next batch is ready when a step ends.
        for events in self._read(stream):
            batch = self._batch(events.rows) if events.rows.num_rows else None
            yield Tick(batch, events.newest, events.position)

    def _batch(self, rows: pa.RecordBatch) -> Batch:
        count = rows.num_rows
        own = Part(self._ranks.rank, self._ranks.size).of(count)
        part = self._encode(rows.slice(own.start, own.stop - own.start))
        assert part.labels is not None  # streams require labels
        return Batch(part.labels, part.weights, count, model_inputs(part))

    def _own_part(self, message: bytes) -> Tick | None:
        end = 8 + int.from_bytes(message[:8], "little")
        head = json.loads(message[8:end])
        if head is None:
            return None
        batch = None
        if end < len(message):
            (rows,) = pa.ipc.open_stream(pa.py_buffer(message[end:]))
            batch = agreed(self._ranks, "rows of a batch", lambda: self._batch(rows))
        newest = float("nan") if head["newest"] is None else head["newest"]
        return Tick(batch, newest, head["position"], head["orders"])


def _message(events: TrainingEvents | None, orders: Orders) -> bytes:
    """Returns a tick for all ranks: the length of a JSON head, the head, the rows as Arrow IPC."""
    head: dict[str, Any] | None = None
    rows = b""
    if events is not None:
        newest = None if np.isnan(events.newest) else events.newest
        head = {"newest": newest, "position": events.position, "orders": orders}
        if events.rows.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, events.rows.schema) as writer:
                writer.write_batch(events.rows)
            rows = sink.getvalue().to_pybytes()
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + rows
