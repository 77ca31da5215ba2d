"""Opens a store by its URL."""

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
    """Returns an open store; close it after use.

    Args:
        url: see `StoreUrl`.
        access: credentials; None: no password.
        create: create an embedded store if it does not exist.
        option: the option that had the URL, for messages.
        patience_seconds: how long a call retries while no server answers, or waits for another
            process that writes to files; the default is longer than a failover.

    Raises:
        InvalidArgumentError: not the URL of a store.
        NotFoundError: the embedded store does not exist.
        UnavailableError, PermissionDeniedError: the store does not answer, or refuses access.
    """
    parsed = parse_store_url(option, url)
    if parsed.kind is StoreKind.FILE:
        from hotrow.store.lmdb import LmdbStore

        return LmdbStore(parsed.path, create=create, patience_seconds=patience_seconds)
    from hotrow.store.redis.row_store import RedisStore

    return RedisStore(parsed, access or StoreAccess(), patience_seconds)
