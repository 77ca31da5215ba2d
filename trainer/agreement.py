"""Work that succeeds on all ranks, or fails on all with the same error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hotrow.errors import HotrowError, from_status
from hotrow.ops.ranks import Ranks

Result = TypeVar("Result")


def agreed(ranks: Ranks, what: str, work: Callable[[], Result]) -> Result:
    """Returns what `work` returned, if it succeeded on every rank. A collective.

    Args:
        ranks: all of them call this.
        what: name of the work, for messages of ranks that wait.
        work: calls no collectives.

    Raises:
        HotrowError: the error of `work` on the first rank where it failed.
    """
    if ranks.size == 1:
        return work()
    result: Result | None = None
    failure: HotrowError | None = None
    try:
        result = work()
    except HotrowError as err:
        failure = err
    reports = gathered(ranks, what, error_report(failure))
    raise_first(reports, failure)
    return result  # type: ignore[return-value]


def gathered(ranks: Ranks, what: str, value: Any) -> list[Any]:
    """Returns the JSON value of every rank, in their order. A collective."""
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    return [json.loads(part.tobytes()) for part in ranks.all_gather(data, what)]


def of_first(ranks: Ranks, what: str, value: Any) -> Any:
    """Returns the JSON value of rank 0; other ranks' values are ignored. A collective."""
    data = json.dumps(value).encode() if ranks.is_first else None
    return json.loads(ranks.broadcast(data, what))


def error_report(err: HotrowError | None) -> dict[str, Any] | None:
    """Returns an error as a JSON value."""
    if err is None:
        return None
    return {"status": err.grpc_status, "exit": err.exit_code, "text": str(err)}


def error_of(report: dict[str, Any], before: str = "") -> HotrowError:
    """Returns the error of a report that `error_report` made, with `before` as a prefix."""
    error = from_status(report["status"], before + report["text"])
    error.exit_code = report["exit"]
    return error


def raise_first(reports: list[dict[str, Any] | None], own: HotrowError | None) -> None:
    """Raises the result of `first_error`, if it is an error."""
    error = first_error(reports, own)
    if error is not None:
        raise error from own


def first_error(
    reports: list[dict[str, Any] | None], own: HotrowError | None
) -> HotrowError | None:
    """Returns the error of the first rank that reports one, with the rank's name if it is not 0.

    Args:
        reports: `error_report` of each rank.
        own: this rank's error, set as the cause.
    """
    for rank, error in enumerate(reports):
        if error is None:
            continue
        everywhere = all(other == error for other in reports)
        found = error_of(error, "" if rank == 0 or everywhere else f"rank {rank}: ")
        found.on_all_ranks = True
        found.__cause__ = own
        return found
    return None
