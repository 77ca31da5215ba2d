"""Flags about the files and the memory of logged requests."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True)
class RequestLogOptions:
    """Bounds of logged requests; flags of ours.

    Attributes:
        request_log_file_bytes: size limit of a file; a record beyond it begins the next file.
        request_log_file_seconds: age limit of a file.
        request_log_queue_bytes: limit of records that wait to be written; more are dropped.
    """

    request_log_file_bytes: int = 256 << 20
    request_log_file_seconds: int = 3600
    request_log_queue_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Refuses bounds that are out of range.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
        """
        for flag, value in vars(self).items():
            if not 1 <= value <= 2**53:
                raise InvalidArgumentError(
                    f"--{flag} {value} is out of range; give a number from 1 to {2**53}"
                )
