"""The values that ranks exchange after each step, in one collective.

n rows of the global batch, b of a rank's part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import FailedPreconditionError, HotrowError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import error_report, first_error

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StepReport:
    """The report of a step, by one rank or by all ranks together.

    Attributes:
        labels: float32 [b]; of all ranks [n].
        logits: float32 [b]; of all ranks [n], in the order of the global batch.
        rows: n.
        stop: number of the signal that requests a stop, or None.
        is_last: the epoch has no further batch.
        has_two: two further batches were read; of all ranks: on every rank.
        report: whether metrics are due; rank 0 decides.
        checkpoint: whether a checkpoint is due; rank 0 decides.
        writing: this rank's report on the checkpoint that is being written, or the list of all
            ranks' reports; see `CheckpointWriter`.
        next_rows: rows of the next two batches, if ranks read shards; of all ranks: each rank's.
        weights: weights of the rows, float32 [b]; of all ranks [n]; None: each weighs 1.
        failure: the error that keeps this rank, or any rank, from the next step; this step is done.
    """

    labels: Floats
    logits: Floats
    rows: int
    stop: int | None = None
    is_last: bool = False
    has_two: bool = False
    report: bool = False
    checkpoint: bool = False
    writing: Any = None
    failure: HotrowError | None = None
    weights: Floats | None = None
    next_rows: Any = None


def exchange(ranks: Ranks, own: StepReport, step: int) -> StepReport:
    """Returns the report of all ranks together. A collective.

    Args:
        ranks: all of them call this.
        own: this rank's report.
        step: number of the step, for messages.

    Raises:
        FailedPreconditionError: the ranks do not read the same rows.
    """
    facts = {
        "rows": own.rows,
        "weighted": own.weights is not None,
        "stop": own.stop,
        "is_last": own.is_last,
        "has_two": own.has_two,
        "report": own.report,
        "checkpoint": own.checkpoint,
        "writing": own.writing,
        "failure": error_report(own.failure),
        "next_rows": own.next_rows,
    }
    head = json.dumps(facts).encode()
    weights = b"" if own.weights is None else own.weights.tobytes()
    message = b"".join(
        (
            len(head).to_bytes(8, "little"),
            head,
            own.labels.tobytes(),
            own.logits.tobytes(),
            weights,
        )
    )
    parts = ranks.all_gather(np.frombuffer(message, np.uint8), f"metrics of step {step}")
    reports, values = zip(*map(_unpacked, parts), strict=True)
    labels, logits, *more = (np.concatenate(arrays) for arrays in zip(*values, strict=True))
    first = reports[0]
    rows = [one["rows"] for one in reports]
    if len(set(rows)) > 1:
        raise FailedPreconditionError(
            f"step {step}: the ranks read different files: their batches have "
            f"{', '.join(map(str, rows))} rows"
        )
    failure = first_error([one["failure"] for one in reports], own.failure)
    next_rows = None if own.next_rows is None else [one["next_rows"] for one in reports]
    if next_rows is not None:  # a rank without rows takes part while others have some
        item, after = (sum(of_rank) for of_rank in zip(*next_rows, strict=True))
        for one in reports:
            one["is_last"], one["has_two"] = not item, one["has_two"] and after > 0
    ends = [one["is_last"] for one in reports]
    if failure is None and len(set(ends)) > 1:
        failure = FailedPreconditionError(
            f"the ranks read different files: rank {ends.index(True)} has no batch after step "
            f"{step}, rank {ends.index(False)} has"
        )
        failure.on_all_ranks = True
    return StepReport(
        labels=labels,
        logits=logits,
        rows=first["rows"],
        stop=next((one["stop"] for one in reports if one["stop"] is not None), None),
        is_last=first["is_last"],
        has_two=all(one["has_two"] for one in reports),
        report=first["report"],
        checkpoint=first["checkpoint"],
        writing=[one["writing"] for one in reports],
        failure=failure,
        weights=more[0] if more else None,
        next_rows=next_rows,
    )


def _unpacked(part: npt.NDArray[np.generic]) -> tuple[dict[str, Any], list[Floats]]:
    """Returns the other values, labels and logits, and weights if there are any."""
    data = part.tobytes()
    end = 8 + int.from_bytes(data[:8], "little")
    values = np.frombuffer(data[end:], np.float32)
    facts = json.loads(data[8:end])
    return facts, np.split(values, 3 if facts["weighted"] else 2)
