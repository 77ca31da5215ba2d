"""The store to which a trainer publishes."""

from __future__ import annotations

from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.row_store import RowStore

_PATIENCE_SECONDS = 5.0


def open_online_store(url: str, access: StoreAccess) -> RowStore:
    """Returns the open store of `online.store`, whose calls retry for 5 s; close it after use.

    Raises:
        UnavailableError, PermissionDeniedError: it does not answer, or refuses.
    """
    return open_store(
        url, access, create=True, option="online.store", patience_seconds=_PATIENCE_SECONDS
    )
