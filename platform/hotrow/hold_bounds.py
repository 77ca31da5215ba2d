"""How long, and with how many bytes, a reader may keep incremental exports from being folded."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError

MAX_HOLD_SECONDS = 4 * 3600.0
MAX_HOLD_BYTES = 1 << 30


@dataclass(frozen=True)
class HoldBounds:
    """How long, and with how many bytes, a reader may hold up folding.

    Attributes:
        seconds: None: for any time.
        bytes: of staged cuts; None: any number.
    """

    seconds: float | None = MAX_HOLD_SECONDS
    bytes: int | None = MAX_HOLD_BYTES

    def __post_init__(self) -> None:
        """Refuses illegal values."""
        for name, value in (("max_hold_seconds", self.seconds), ("max_hold_bytes", self.bytes)):
            if value is not None and not value >= 0:
                raise InvalidArgumentError(f"{name} {value}: must be 0 or more, or None: no bound")
