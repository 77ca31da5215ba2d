"""A checkpoint that is being written while training goes on."""

from __future__ import annotations

from typing import Any, Protocol

from hotrow.trainer.checkpoint.outcome import Outcome


class Write(Protocol):
    """By one process (`LoneWrite`) or by several ranks (`SharedWrite`).

    Attributes:
        step: that it is of.
        chain: name and seal of what it builds on.
        last: of the run.
        seal: of the manifest, once it is over.
    """

    step: int
    chain: list[tuple[str, str]]
    last: bool
    seal: str

    @property
    def over(self) -> bool:
        """Whether the checkpoint is there, or failed."""

    def report(self) -> Any:
        """Returns what this rank sends the others after a step, as a JSON value."""

    def receive(self, reports: list[Any]) -> None:
        """Takes the reports of all ranks after a step."""

    def wait(self) -> None:
        """Returns when it is over. A collective."""

    def close(self, abandon: bool) -> None:
        """Ends it before the ranks end, which may be gone already: no collective.

        Args:
            abandon: give it up rather than wait for it. Several ranks always do.
        """

    def outcome(self, waited: float) -> Outcome | None:
        """Returns what became of it, when it is over; None: it was given up.

        Args:
            waited: seconds that training stood still for it after its begin.
        """
