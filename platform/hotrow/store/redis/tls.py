"""TLS of a store's clients: how they verify servers and present their own certificate."""

from __future__ import annotations

import ssl

from hotrow.store.access import StoreAccess


def tls_context(access: StoreAccess) -> ssl.SSLContext:
    """Returns the context that redis-py's `SSLConnection` makes of the same files.

    A server's certificate must be valid, be signed by the system's or the given authorities, and
    name the host of the connection.

    Raises:
        OSError, ssl.SSLError: a file cannot be read, or is no PEM.
    """
    context = ssl.create_default_context()
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    if access.ca_file:
        context.load_verify_locations(access.ca_file)
    return context
