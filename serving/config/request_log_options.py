"""Flags about the files and the memory of logged requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True)
class RequestLogOptions:
    """Place and bounds of logged requests; flags of ours.

    Attributes:
        request_log_root: the directory below which all files must lie; "": any, also for a
            configuration that comes over the network.
        request_log_file_bytes: size limit of a file; a record beyond it begins the next file.
        request_log_file_seconds: age limit of a file.
        request_log_queue_bytes: limit of records that wait to be written; more are dropped.
    """

    request_log_root: str = ""
    request_log_file_bytes: int = 256 << 20
    request_log_file_seconds: int = 3600
    request_log_queue_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Refuses bounds that are out of range, and a root that is no directory.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
        """
        if self.request_log_root and not Path(self.request_log_root).is_dir():
            raise InvalidArgumentError(
                f"--request_log_root {self.request_log_root}: is no directory"
            )
        for flag in (
            "request_log_file_bytes",
            "request_log_file_seconds",
            "request_log_queue_bytes",
        ):
            value = getattr(self, flag)
            if not 1 <= value <= 2**53:
                raise InvalidArgumentError(
                    f"--{flag} {value} is out of range; give a number from 1 to {2**53}"
                )
