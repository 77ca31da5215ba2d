"""Counts of published cuts, for the status and metrics."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from hotrow.store.cuts import CutRecord
from hotrow.trainer.online.admin.seconds_histogram import SecondsHistogram


@dataclass
class PublishCounts:
    """What was published by this process.

    Attributes:
        last: the newest cut; None: none yet.
        stage_seconds: from taking that cut to its commit.
        committed: when it was committed, Unix seconds.
        cuts, rows: numbers of cuts and of rows in them, removed ones included.
        coalesced_rows: rows that were due at a time when the cut before was not committed yet.
        failures: failed attempts in a row.
        failures_total: of all attempts.
        error: of the last failure; "" after a success.
        folded: version of the newest folded cut.
        unfolded_cuts: committed cuts that are not folded.
        base_exports: full exports.
        publish_seconds: durations from taking a cut to its commit.
        event_to_commit_seconds: durations from a cut's newest event to its commit.
    """

    last: CutRecord | None = None
    stage_seconds: float = 0.0
    committed: float = 0.0
    cuts: int = 0
    rows: int = 0
    coalesced_rows: int = 0
    failures: int = 0
    failures_total: int = 0
    error: str = ""
    folded: int = 0
    unfolded_cuts: int = 0
    base_exports: int = 0
    publish_seconds: SecondsHistogram = field(default_factory=SecondsHistogram)
    event_to_commit_seconds: SecondsHistogram = field(default_factory=SecondsHistogram)

    def add(self, cut: CutRecord, seconds: float, newest: float) -> None:
        """Adds a cut that was just committed.

        Args:
            cut: its record.
            seconds: from taking it to its commit.
            newest: time of its newest event, Unix seconds; NaN: not known.
        """
        self.last, self.stage_seconds, self.committed = cut, seconds, time.time()
        self.publish_seconds.observe(seconds)
        if not math.isnan(newest):
            self.event_to_commit_seconds.observe(self.committed - newest)
        self.cuts += 1
        self.rows += cut.rows + cut.removed
        self.failures, self.error = 0, ""

    def add_failure(self, error: str) -> None:
        """Adds a failed attempt."""
        self.failures += 1
        self.failures_total += 1
        self.error = error
