"""Files with the token that a client shows."""

from __future__ import annotations

from pathlib import Path

from hotrow.errors import InvalidArgumentError, NotFoundError


def read_token(option: str, path: str) -> str:
    """Returns the first line with a token; "" if no file is given.

    Args:
        option: the option that names the file, for messages.
        path: of the file; "": none.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it has no token.
    """
    if not path:
        return ""
    try:
        tokens = Path(path).read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "it is no UTF-8 text"
        raise NotFoundError(f"--{option} {path} cannot be read: {reason}") from err
    if not tokens:
        raise InvalidArgumentError(f"--{option} {path} is empty; write the token into it")
    return tokens[0]
