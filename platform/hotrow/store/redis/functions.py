"""The functions that run inside Redis (`functions.lua`, `reader_functions.lua`).

A hash of the content names the library of exporters, so two versions of Hotrow do not compete for
one name. A node without it gets it on demand: at the first use, and on a new primary.

Users of servers have the right to call the one function of readers and not to load any, so its name
is fixed, and exporters load it.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

import redis

from hotrow.errors import FailedPreconditionError

_SOURCE = resources.files("hotrow.store.redis").joinpath("functions.lua").read_text()
LIBRARY = f"hotrow_{hashlib.sha256(_SOURCE.encode()).hexdigest()[:12]}"

PUT = f"{LIBRARY}_put"
SWAP = f"{LIBRARY}_swap"
MARK = f"{LIBRARY}_mark"

READER_SOURCE = resources.files("hotrow.store.redis").joinpath("reader_functions.lua").read_text()
SWAP_LEASE = "hotrow_readers_1_swap"

LOST = "HOTROWLOST"
"""How the error of `put` begins when a marker is missing."""


class ReaderFunctionMissingError(FailedPreconditionError):
    """A node lacks the function of readers."""


def is_missing(err: Exception) -> bool:
    """Returns whether a node lacks the functions."""
    return isinstance(err, redis.ResponseError) and "Function not found" in str(err)


def load_functions(connection: Any) -> None:
    """Loads the functions into a primary; its replicas receive them from it.

    Raises:
        redis.RedisError: the server refused, or did not answer.
    """
    connection.send_command("FUNCTION", "LOAD", "REPLACE", _SOURCE.replace("NAME", LIBRARY))
    connection.read_response()
