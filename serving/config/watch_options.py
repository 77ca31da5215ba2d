"""When a server counts its executable as hung, and how long a load may take."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True)
class WatchOptions:
    """Limits for answers of `hotrow-server`.

    Attributes:
        unready_after_seconds: without an answer for so long, the server is not ready.
        restart_after_seconds: without an answer for so long, the process is killed and started
            again; also the limit of a brief control call. 0: never. The default leaves a machine
            that swaps or is overloaded time to recover.
        load_timeout_seconds: limit of a control call that loads or frees a version, or takes a
            cut. 0: none.
    """

    unready_after_seconds: float = 5.0
    restart_after_seconds: float = 30.0
    load_timeout_seconds: float = 3600.0

    def __post_init__(self) -> None:
        """Refuses illegal values."""
        if self.unready_after_seconds <= 0:
            raise InvalidArgumentError(
                f"--unready_after_seconds {self.unready_after_seconds:g}: must be above 0"
            )
        for name in ("restart_after_seconds", "load_timeout_seconds"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(
                    f"--{name} {getattr(self, name):g}: must be above 0, or 0 for no limit"
                )
        if 0 < self.restart_after_seconds < self.unready_after_seconds:
            raise InvalidArgumentError(
                f"--restart_after_seconds {self.restart_after_seconds:g} is below "
                f"--unready_after_seconds {self.unready_after_seconds:g}: a server must be known "
                "as not ready before its executable is restarted"
            )
