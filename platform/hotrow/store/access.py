"""Credentials for a store: user, password, certificates; never in a URL, never printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hotrow.errors import HotrowError, InvalidArgumentError, NotFoundError, PermissionDeniedError

PASSWORD_VARIABLE = "HOTROW_STORE_PASSWORD"


@dataclass(frozen=True)
class StoreAccess:
    """Credentials of a store's client; its repr shows no password.

    Attributes:
        username: overrides the user of the URL; "": the URL's user.
        password: "" for none.
        ca_file: PEM file of the authorities that verify a server's certificate; "": the system's.
        cert_file, key_file: PEM files of the client's own certificate; "": none.
        wait_replicas: how many replicas of each node must have a cut before and after its commit.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        """Refuses a certificate without its key or the reverse, and missing files."""
        if bool(self.cert_file) != bool(self.key_file):
            given, other = ("cert", "key") if self.cert_file else ("key", "cert")
            raise InvalidArgumentError(f"--store_{given} without --store_{other}: give both")
        for option in ("ca", "cert", "key"):
            path = getattr(self, f"{option}_file")
            if path:
                _read(f"--store_{option}", path)


def read_access(
    *,
    username: str = "",
    password_file: str = "",
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    environment: Mapping[str, str] = os.environ,
) -> StoreAccess:
    """Returns the credentials from options and environment.

    Args:
        username: see `StoreAccess`.
        password_file: file with the password and at most one line end; "": use the password in the
            environment.
        ca_file: see `StoreAccess`.
        cert_file: see `StoreAccess`.
        key_file: see `StoreAccess`.
        environment: environment of the process.

    Raises:
        NotFoundError, PermissionDeniedError: a file cannot be read.
        InvalidArgumentError: an empty password file; a certificate without its key.
    """
    if password_file:
        content = _read("--store_password_file", password_file)
        try:
            password = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as err:
            raise InvalidArgumentError(
                f"--store_password_file {password_file}: is no UTF-8 text"
            ) from err
        if not password or "\n" in password:
            raise InvalidArgumentError(
                f"--store_password_file {password_file}: must hold the password in one line"
            )
    else:
        password = environment.get(PASSWORD_VARIABLE, "")
    return StoreAccess(username, password, ca_file, cert_file, key_file)


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as err:
        kind: type[HotrowError] = InvalidArgumentError
        if isinstance(err, FileNotFoundError):
            kind = NotFoundError
        elif isinstance(err, PermissionError):
            kind = PermissionDeniedError
        raise kind(f"{option} {path}: {err.strerror}") from err
