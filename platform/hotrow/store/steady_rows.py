"""What a reader that takes no cuts reads: the rows of the last cut that was folded."""

from __future__ import annotations

import time

from hotrow.errors import UnavailableError
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.row_store import Records
from hotrow.store.spec import Generation

_LOOK_SECONDS = 0.1


def last_folded(
    records: Records, generation: Generation, wait_seconds: float = 30.0
) -> CutRecord | None:
    """Returns the cut that the rows of a generation are of; None: they are as exported.

    The caller has a lease without `follows_cuts`, so that it stays like that.

    Args:
        records: of the store.
        generation: which.
        wait_seconds: how long to wait while rows are being changed.

    Raises:
        UnavailableError: they are half changed, and nobody goes on with it.
    """
    end = time.monotonic() + wait_seconds
    while True:
        cuts = cuts_of(records, generation)
        half = [cut for cut in cuts if cut.folding and not cut.folded]
        if not half:
            return next((cut for cut in reversed(cuts) if cut.folded), None)
        if time.monotonic() >= end:
            raise UnavailableError(
                f"generation {generation.generation} has only some of the rows of step "
                f"{half[0].step}; run the export of that step again"
            )
        time.sleep(_LOOK_SECONDS)
