"""URLs of stores, as commands and manifests take them (design D8)."""

from __future__ import annotations

from hotrow.errors import InvalidArgumentError, UnimplementedError

_REDIS = ("redis://", "rediss://", "redis+cluster://")


def check_store_url(option: str, url: str) -> None:
    """Checks that a store of this URL can be opened by this version of Hotrow.

    Args:
        option: what the user wrote it behind, for the message.
        url: `file:///dir`.

    Raises:
        UnimplementedError: a store that is not built yet.
        InvalidArgumentError: no URL of a store.
    """
    if url.startswith("file:///"):
        return
    if url.startswith(_REDIS):
        raise UnimplementedError(f"{option} {url}: Redis stores are not built yet; use file:///DIR")
    raise InvalidArgumentError(f"{option} {url!r}: must be file:///DIR, an absolute path")
