"""The tokens that requests of operators show, read again when their file changes."""

from __future__ import annotations

import hmac
import logging
import os
import threading
from pathlib import Path

from hotrow.errors import InvalidArgumentError, NotFoundError

_LOG = logging.getLogger(__name__)
_SCHEME = "bearer"


class Tokens:
    """The tokens of a file.

    While the file cannot be read, or has no token, those read before stay valid: a file that is
    being replaced refuses no client.
    """

    def __init__(self, path: Path, option: str) -> None:
        """Reads the file.

        Args:
            path: of a file with a token on each line, so that clients change theirs one by one.
            option: the option that names the file, for messages.

        Raises:
            NotFoundError: it cannot be read.
            InvalidArgumentError: it has no token, or one that is not ASCII.
        """
        self._path = path
        self._option = option
        self._lock = threading.Lock()
        self._failed = False
        try:
            self._state = _state_of(path)
            self._tokens = _tokens_of(path)
        except OSError as err:
            raise NotFoundError(
                f"{option} {path} cannot be read: {err.strerror}; give a file with a token"
            ) from err
        except ValueError as err:
            raise InvalidArgumentError(
                f"{option} {path}: {err}; write a token of ASCII letters and digits on a line"
            ) from err

    def accept(self, authorization: str | None) -> bool:
        """Returns whether a header `authorization` is `Bearer` and a token.

        The time that this takes does not depend on where a wrong token differs.
        """
        scheme, _, shown = (authorization or "").partition(" ")
        same = [hmac.compare_digest(shown.strip().encode(), token) for token in self._current()]
        return scheme.lower() == _SCHEME and any(same)

    def _current(self) -> list[bytes]:
        with self._lock:
            try:
                state = _state_of(self._path)
                if state != self._state:
                    self._tokens = _tokens_of(self._path)
                    self._state = state
                    _LOG.info(f"{self._option} {self._path} has changed and is read again")
                self._failed = False
            except (OSError, ValueError) as err:
                if not self._failed:
                    _LOG.error(f"{self._option}: {err}; the tokens read before stay valid")
                self._failed = True
            return self._tokens


def _state_of(path: Path) -> tuple[int, ...]:
    """Returns what changes with the file's contents."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _tokens_of(path: Path) -> list[bytes]:
    tokens = [line.strip().encode("ascii") for line in path.read_text("utf-8").splitlines()]
    tokens = [token for token in tokens if token]
    if not tokens:
        raise ValueError(f"{path} has no token")
    return tokens
