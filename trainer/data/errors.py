"""The errors of data files whose content cannot be used."""

from __future__ import annotations

from hotrow.errors import HotrowError


class DataError(HotrowError):
    """A data file is empty, damaged or malformed; the message names file, line and value."""

    exit_code = 1
    grpc_status = 3  # INVALID_ARGUMENT


class EmptyFileError(DataError):
    """A text file has no line at all, not even a header."""
