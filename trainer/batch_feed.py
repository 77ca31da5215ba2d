"""The batches of an epoch: the next one, and when to prefetch the keys of later ones.

b rows of this rank's part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hotrow.ops.ranks import Ranks
from hotrow.trainer.epoch_stream import EpochStream
from hotrow.trainer.model_inputs import ModelInputs, model_inputs
from hotrow.trainer.next_two import NextTwo
from hotrow.trainer.prefetch import prefetch
from hotrow.trainer.step_report import StepReport, exchange
from hotrow.trainer.stop_request import StopRequest

Floats = npt.NDArray[np.float32]


class Batch(NamedTuple):
    """A batch to train, or this rank's part of it.

    Attributes:
        labels: float32 [b].
        weights: weights of the rows, float32 [b]; None: each weighs 1.
        rows: rows of the batch of all ranks.
        inputs: of the model.
        first: where the part begins in the batch; None: as in `hotrow.trainer.data.part`.
    """

    labels: Floats
    weights: Floats | None
    rows: int
    inputs: ModelInputs
    first: int | None = None


HandOver = Callable[[list[Batch]], None]


class StepFeed(Protocol):
    """What ranks exchange after each step."""

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Returns a step as all ranks report it.

        Args:
            own: this rank's report.
            step: its number.
        """

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the number of the signal on which all ranks stop after a step, or None."""


class BatchFeed(StepFeed, Protocol):
    """The feed of one process (`WindowFeed`) or of a rank among several (`RankFeed`)."""

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: no further batch."""

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Fetches the first batch; returns a report as `end_step` does.

        Args:
            own: this rank's report, without rows.
            step: number of the last step, for messages.

        Raises:
            HotrowError: the batch cannot be read, on a single rank.
        """

    def advance(self) -> None:
        """Moves to the next batch after a step that is not the last.

        Raises:
            HotrowError: the next batch cannot be read.
        """


class WindowFeed:
    """Prefetches windows of batches."""

    def __init__(self, batches: Iterable[Batch], window: int, hand_over: HandOver) -> None:
        """Fetches nothing yet.

        Args:
            batches: the batches of the epoch.
            window: batches in a window; 0: no prefetching.
            hand_over: prefetches the keys of a window's batches.
        """
        self._item: Batch | None = None
        self._batches = iter(prefetch(batches, window, hand_over))

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: no further batch."""
        return self._item

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Fetches the first batch."""
        self.advance()
        return own

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Returns the report of the only rank."""
        return own

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the signal that has arrived so far, or None."""
        return request.number

    def advance(self) -> None:
        """Fetches the next batch; `item` is None during the fetch."""
        self._item = None
        self._item = next(self._batches, None)


class RankFeed:
    """Fetches a batch early, so that ranks agree which batches all have; prefetches those."""

    def __init__(
        self,
        batches: Iterable[Batch],
        prefetches: bool,
        hand_over: HandOver,
        ranks: Ranks,
        sharded: bool = False,
    ) -> None:
        """Fetches two batches.

        Args:
            batches: the batches of the epoch.
            prefetches: whether to prefetch keys.
            hand_over: prefetches the keys of batches.
            ranks: all of them call the same methods.
            sharded: `batches` are a rank's own, without end: a step's rows are those of all ranks
                together, and the epoch ends when no rank has one.
        """
        self._two = NextTwo(batches)
        self._sharded = sharded
        self._next: Batch | None = None  # if sharded, with the rows of all ranks
        self._prefetches = prefetches
        self._hand_over = hand_over
        self._ranks = ranks

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: no further batch."""
        return self._next if self._sharded else self._two.item

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Exchanges whether ranks have a first batch; prefetches the batches that all have."""
        done = self._exchanged(own, step)
        if self.item is not None:
            self._prefetch(self.item, done)
        self._prefetch_after(done)
        return done

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Fetches the next batch; returns the step as all ranks report it."""
        self._two.fetch()
        done = self._exchanged(own, step)
        self._prefetch_after(done)
        return done

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the signal that any rank had received when the step ended, or None."""
        return done.stop

    def advance(self) -> None:
        """Does nothing: `end_step` has fetched the next batch."""

    def _exchanged(self, own: StepReport, step: int) -> StepReport:
        two = self._two
        is_last, has_two = two.item is None, two.after is not None
        own = replace(own, is_last=is_last, has_two=has_two, failure=two.failure)
        if not self._sharded:
            return exchange(self._ranks, own, step)
        next_rows = [0 if one is None else one.rows for one in (two.item, two.after)]
        done = exchange(self._ranks, replace(own, next_rows=next_rows), step)
        counts = [item for item, _ in done.next_rows]
        self._next = None
        if two.item is not None and not done.is_last:
            first = sum(counts[: self._ranks.rank])
            self._next = two.item._replace(rows=sum(counts), first=first)
        return done

    def _prefetch_after(self, done: StepReport) -> None:
        # All ranks prefetch, or none does: the prefetched keys travel in the next step.
        if self._two.after is not None and done.has_two:
            self._prefetch(self._two.after, done)

    def _prefetch(self, batch: Batch, done: StepReport) -> None:
        if self._prefetches and done.failure is None:
            self._hand_over([batch])


def with_inputs(stream: EpochStream) -> Iterator[Batch]:
    """Yields batches with labels, weights, rows and inputs only, so that the rest can be freed."""
    for batch in stream:
        assert batch.labels is not None  # streams require labels
        yield Batch(batch.labels, batch.weights, batch.global_size, model_inputs(batch))
