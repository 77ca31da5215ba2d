"""The batches of an epoch: which is next, and when the keys of later ones are prefetched.

b rows of this rank's part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hotrow.ops.ranks import Ranks
from hotrow.trainer.data import BatchStream
from hotrow.trainer.model_inputs import ModelInputs, model_inputs
from hotrow.trainer.next_two import NextTwo
from hotrow.trainer.prefetch import prefetch
from hotrow.trainer.step_report import StepReport, exchange
from hotrow.trainer.stop_request import StopRequest

Floats = npt.NDArray[np.float32]
Batch = tuple[Floats, Floats | None, int, ModelInputs]
"""Labels float32 [b], weights of the rows float32 [b], rows of the batch of all ranks, inputs."""
HandOver = Callable[[list[Batch]], None]


class BatchFeed(Protocol):
    """Of one process (`WindowFeed`) or of a rank among several (`RankFeed`)."""

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: there is none."""

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Fetches the first batch, which ends as a step does.

        Args:
            own: this rank's report, without rows.
            step: the last one, for messages.

        Raises:
            HotrowError: the batch of the only rank cannot be read.
        """

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Returns a step as all ranks report it.

        Args:
            own: this rank's report.
            step: its number.
        """

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the number of the signal that all ranks stop for after a step, or None."""

    def advance(self) -> None:
        """Moves on after a step that is not the last.

        Raises:
            HotrowError: the next batch cannot be read.
        """


class WindowFeed:
    """Prefetches windows of batches."""

    def __init__(self, batches: Iterable[Batch], window: int, hand_over: HandOver) -> None:
        """Fetches nothing yet.

        Args:
            batches: of the epoch.
            window: batches of a window; 0: none is prefetched.
            hand_over: prefetches the keys of these.
        """
        self._item: Batch | None = None
        self._batches = iter(prefetch(batches, window, hand_over))

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: there is none."""
        return self._item

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Fetches the first batch."""
        self.advance()
        return own

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Returns the report of the only rank."""
        return own

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the signal that came until now."""
        return request.number

    def advance(self) -> None:
        """Fetches the next batch; while that goes on, there is none."""
        self._item = None
        self._item = next(self._batches, None)


class RankFeed:
    """Fetches a batch early, so that all ranks know which of them all have; prefetches these."""

    def __init__(
        self, batches: Iterable[Batch], prefetches: bool, hand_over: HandOver, ranks: Ranks
    ) -> None:
        """Fetches two batches.

        Args:
            batches: of the epoch.
            prefetches: whether keys are prefetched.
            hand_over: prefetches the keys of these.
            ranks: all of them call the same methods.
        """
        self._two = NextTwo(batches)
        self._prefetches = prefetches
        self._hand_over = hand_over
        self._ranks = ranks

    @property
    def item(self) -> Batch | None:
        """The batch to train next; None: there is none."""
        return self._two.item

    def begin(self, own: StepReport, step: int) -> StepReport:
        """Learns whether all ranks have a first batch, or none, and prefetches what all have."""
        done = self._exchanged(own, step)
        if self._two.item is not None:
            self._prefetch(self._two.item, done)
        self._prefetch_after(done)
        return done

    def end_step(self, own: StepReport, step: int) -> StepReport:
        """Fetches the next batch, and returns the step as all ranks report it."""
        self._two.fetch()
        done = self._exchanged(own, step)
        self._prefetch_after(done)
        return done

    def stop(self, done: StepReport, request: StopRequest) -> int | None:
        """Returns the signal that a rank had got when the step ended."""
        return done.stop

    def advance(self) -> None:
        """Does nothing: `end_step` has fetched the next batch."""

    def _exchanged(self, own: StepReport, step: int) -> StepReport:
        two = self._two
        is_last, has_two = two.item is None, two.after is not None
        own = replace(own, is_last=is_last, has_two=has_two, failure=two.failure)
        return exchange(self._ranks, own, step)

    def _prefetch_after(self, done: StepReport) -> None:
        # All ranks or none: what is prefetched travels in the next step.
        if self._two.after is not None and done.has_two:
            self._prefetch(self._two.after, done)

    def _prefetch(self, batch: Batch, done: StepReport) -> None:
        if self._prefetches and done.failure is None:
            self._hand_over([batch])


def with_inputs(stream: BatchStream) -> Iterator[Batch]:
    """Yields labels, weights, rows and inputs; what else a batch holds may go."""
    for batch in stream:
        assert batch.labels is not None  # BatchStream requires labels
        yield batch.labels, batch.weights, batch.global_size, model_inputs(batch)
