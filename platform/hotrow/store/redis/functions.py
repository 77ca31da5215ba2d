"""The functions that run inside Redis (`functions.lua`).

A hash of the content names their library, so two versions of Hotrow do not compete for one name. A
server without it gets it on demand: at the first use, and on a new primary.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

import redis

_SOURCE = resources.files("hotrow.store.redis").joinpath("functions.lua").read_text()
LIBRARY = f"hotrow_{hashlib.sha256(_SOURCE.encode()).hexdigest()[:12]}"

PUT = f"{LIBRARY}_put"
SWAP = f"{LIBRARY}_swap"
MARK = f"{LIBRARY}_mark"

LOST = "HOTROWLOST"
"""How the error of `put` begins when a marker is missing."""


def is_missing(err: Exception) -> bool:
    """Returns whether a server lacks the functions."""
    return isinstance(err, redis.ResponseError) and "Function not found" in str(err)


def load_functions(connection: Any) -> None:
    """Loads the functions into a primary; its replicas receive them from it.

    Raises:
        redis.RedisError: the server refused, or did not answer.
    """
    connection.send_command("FUNCTION", "LOAD", "REPLACE", _SOURCE.replace("NAME", LIBRARY))
    connection.read_response()
