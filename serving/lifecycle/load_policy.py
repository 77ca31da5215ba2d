"""How often a version is tried to load, and when."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.serving.data_plane.executable import ServerEndedError
from hotrow.serving.wire.status import Code, RequestError

# After the store did not answer; doubled each time.
_STORE_RETRY_SECONDS = 1.0
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class LoadPolicy:
    """How often to look for versions and to try to load one.

    Attributes:
        poll_seconds: time between two polls of the base path; None polls each source once.
        max_retries: further attempts after the first failed load. An attempt for which the store
            did not answer does not count, unless this is 0.
        retry_seconds: time between two attempts; the first ones after the store did not answer
            follow sooner.
    """

    poll_seconds: float | None = 1.0
    max_retries: int = 5
    retry_seconds: float = 60.0


@dataclass(frozen=True)
class FailedAttempt:
    """What follows a failed attempt.

    Attributes:
        text: names the attempt, for the log.
        pause: seconds until the next one.
        last: whether there is none.
    """

    text: str
    pause: float
    last: bool


class LoadAttempts:
    """The attempts to load a version since it was last loaded, or seen."""

    def __init__(self) -> None:
        self._counted = 0
        self._without_store = 0  # in a row

    def forget(self) -> None:
        """Begins again: the version was loaded, and is lost."""
        self._counted = self._without_store = 0

    def fail(self, error: RequestError, policy: LoadPolicy) -> FailedAttempt:
        """Notes that an attempt failed."""
        crashed = isinstance(error, ServerEndedError)
        if error.code is Code.UNAVAILABLE and not crashed and policy.max_retries > 0:
            pause = min(_STORE_RETRY_SECONDS * 2**self._without_store, policy.retry_seconds)
            self._without_store = min(self._without_store + 1, _MOST_DOUBLINGS)
            return FailedAttempt("attempt not counted", pause, last=False)
        self._counted += 1
        self._without_store = 0
        # At once after the first crash, which may have another cause than this load.
        pause = 0.0 if crashed and self._counted == 1 else policy.retry_seconds
        most = policy.max_retries + 1
        return FailedAttempt(
            f"attempt {self._counted} of {most}", pause, last=self._counted >= most
        )
