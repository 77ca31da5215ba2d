"""A checkpoint that is being written while training goes on."""

from __future__ import annotations

from typing import Any, Protocol

from hotrow.trainer.checkpoint.outcome import Outcome


class Write(Protocol):
    """A write by one process (`LoneWrite`) or by several ranks (`SharedWrite`).

    Attributes:
        step: step of the checkpoint.
        chain: name and seal of each checkpoint that it builds on.
        last: whether it is the last of the run.
        seal: seal of the manifest, once the write is over.
    """

    step: int
    chain: list[tuple[str, str]]
    last: bool
    seal: str

    @property
    def over(self) -> bool:
        """Whether the checkpoint is written, or has failed."""

    def report(self) -> Any:
        """Returns this rank's report to the others after a step, as a JSON value."""

    def receive(self, reports: list[Any]) -> None:
        """Receives the reports of all ranks after a step."""

    def wait(self) -> None:
        """Returns when the write is over. A collective."""

    def close(self, abandon: bool) -> None:
        """Ends the write before the ranks end; not a collective: others may have ended already.

        Args:
            abandon: abandon the write instead of waiting for it. Several ranks always do.
        """

    def outcome(self, waited: float) -> Outcome | None:
        """Returns the outcome of the write once it is over; None: it was abandoned.

        Args:
            waited: seconds that training waited for it after its start.
        """
