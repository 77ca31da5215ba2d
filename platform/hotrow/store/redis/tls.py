"""How clients of a store check its certificates and show theirs."""

from __future__ import annotations

import ssl

from hotrow.store.access import StoreAccess


def tls_context(access: StoreAccess) -> ssl.SSLContext:
    """Returns what redis-py's `SSLConnection` makes of the same files.

    A certificate must be valid, of the system's authorities or the given ones, and must name the
    host that was asked for.

    Raises:
        OSError, ssl.SSLError: a file cannot be read, or is no PEM.
    """
    context = ssl.create_default_context()
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    if access.ca_file:
        context.load_verify_locations(access.ca_file)
    return context
