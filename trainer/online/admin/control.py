"""What operators may ask of a trainer that learns online."""

from __future__ import annotations

from typing import Protocol

from hotrow.protos import online_pb2


class Control(Protocol):
    """A trainer, as the admin service sees it. Methods are called in several threads.

    A call returns once it has taken effect. Errors are of `hotrow.errors`; clients get their text
    and their gRPC status.
    """

    def status(self) -> online_pb2.TrainerStatus:
        """Returns the state now; never waits for a step, a store or a source."""

    def pause(self, reason: str) -> None:
        """Stops reading, training and publishing between two steps; again: replaces the reason.

        Raises:
            FailedPreconditionError: the trainer was fenced or ends.
        """

    def resume(self, force: bool) -> None:
        """Goes on after a pause, and opens a gate that is closed.

        Args:
            force: whether the next cut is published whatever its gates say.

        Raises:
            FailedPreconditionError: it is neither paused nor closed, was fenced, or ends.
        """

    def rollback(self, to: str) -> str:
        """Publishes an earlier state as a new cut, and closes the gate.

        Args:
            to: 16 hexadecimal digits of a cut that the store keeps, or of the rows as exported.

        Returns:
            16 hexadecimal digits of the new cut.

        Raises:
            NotFoundError: what later cuts replaced is not kept.
            FailedPreconditionError: nothing is published, `to` is shown already, the trainer was
                fenced, or it ends.
            UnavailableError: the store does not answer.
        """
