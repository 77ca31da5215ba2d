"""Errors of Redis as errors of Hotrow."""

from __future__ import annotations

import redis

from hotrow.errors import (
    FailedPreconditionError,
    HotrowError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from hotrow.store.redis.functions import LOST
from hotrow.store.url import StoreUrl

# For these a retry may succeed: a server that starts, a failover, a slot that migrates.
_PASSING = ("LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "BUSY ", "NOREPLICAS")
_REFUSED_USER = ("WRONGPASS", "NOAUTH", "invalid username-password", "invalid password")


def is_passing(err: Exception) -> bool:
    """Returns whether the same call may succeed later, or at another node."""
    if isinstance(err, redis.AuthenticationError | redis.exceptions.AuthorizationError):
        return False
    if isinstance(err, redis.exceptions.MaxConnectionsError):
        return False
    if isinstance(err, redis.ConnectionError | redis.TimeoutError | OSError):
        return "certificate" not in str(err).lower()
    passing = redis.exceptions.AskError, redis.exceptions.TryAgainError, redis.ReadOnlyError
    if isinstance(err, (*passing, redis.exceptions.ClusterDownError)):
        return True
    return isinstance(err, redis.ResponseError) and str(err).startswith(_PASSING)


def is_on_the_move(err: Exception) -> bool:
    """Returns whether a slot is migrating, so that its keys are split between two nodes."""
    # MovedError is a kind of AskError.
    return isinstance(err, redis.exceptions.TryAgainError) or (
        isinstance(err, redis.exceptions.AskError)
        and not isinstance(err, redis.exceptions.MovedError)
    )


def refusal(url: StoreUrl, err: Exception) -> HotrowError:
    """Returns Hotrow's error for an error of redis-py: one line that names the store."""
    text = " ".join(str(err).split()) or type(err).__name__
    if isinstance(err, redis.exceptions.AskError):
        text = f"{'MOVED' if isinstance(err, redis.exceptions.MovedError) else 'ASK'} {text}"
    user = f"user {url.username!r}" if url.username else "the default user"
    if isinstance(err, redis.AuthenticationError) or any(part in text for part in _REFUSED_USER):
        return PermissionDeniedError(
            f"{url}: refuses {user} ({text}); set HOTROW_STORE_PASSWORD or give "
            "--store_password_file FILE, and the name in the URL: redis://USER@..."
        )
    if isinstance(err, redis.exceptions.NoPermissionError):
        return PermissionDeniedError(
            f"{url}: {text}; docs/redis.md has the ACL rules that Hotrow needs"
        )
    if isinstance(err, redis.exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return ResourceExhaustedError(
            f"{url}: is full ({text}); raise maxmemory, add nodes, or delete old generations"
        )
    if text.startswith("MISCONF"):
        return ResourceExhaustedError(
            f"{url}: takes no writes, as it cannot save them ({text}); is its disk full? Its log "
            "says more"
        )
    if text.startswith(LOST):
        return NotFoundError(f"{url}: the store has lost rows ({text}); export the model again")
    if "DB index is out of range" in text:
        return InvalidArgumentError(f"{url}: has no database {url.database} ({text})")
    if "unknown command" in text.lower():
        return FailedPreconditionError(f"{url}: {text}; Hotrow needs Redis 7 or newer")
    if isinstance(err, redis.ConnectionError | redis.TimeoutError | OSError) or is_passing(err):
        hint = ""
        if "certificate" in text.lower():
            hint = "; give its authority, --store_ca FILE"
        elif url.hosts and url.tls:
            hint = "; is it running, and does it speak TLS there? Without: redis://"
        elif url.hosts:
            hint = "; is it running, and is this its port? For TLS: rediss://"
        return UnavailableError(f"{url}: {text}{hint}")
    return FailedPreconditionError(f"{url}: {text}")
