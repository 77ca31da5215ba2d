"""Opens the store of a URL."""

from __future__ import annotations

from hotrow.store.access import StoreAccess
from hotrow.store.row_store import RowStore
from hotrow.store.url import StoreKind, parse_store_url


def open_store(
    url: str,
    access: StoreAccess | None = None,
    *,
    create: bool = False,
    option: str = "--store",
    patience_seconds: float = 30.0,
) -> RowStore:
    """Returns a store; close it.

    Args:
        url: see `StoreUrl`.
        access: how it lets us in; None: without a password.
        create: make an embedded one when there is none.
        option: what the user wrote the URL behind, for messages.
        patience_seconds: how long a call goes on when nobody answers; the default outlives a
            failover.

    Raises:
        InvalidArgumentError: no URL of a store.
        NotFoundError: there is no embedded store there.
        UnavailableError, PermissionDeniedError: it does not answer, or does not let us in.
    """
    parsed = parse_store_url(option, url)
    if parsed.kind is StoreKind.FILE:
        from hotrow.store.lmdb import LmdbStore

        return LmdbStore(parsed.path, create=create)
    from hotrow.store.redis.row_store import RedisStore

    return RedisStore(parsed, access or StoreAccess(), patience_seconds)
