"""Keys and certificates of a port, as a message for the data plane."""

from __future__ import annotations

from hotrow.protos import control_pb2
from hotrow.tls import Tls


def tls_message(tls: Tls | None) -> control_pb2.ListenRequest.Tls | None:
    """Returns the contents as a message; None stays None."""
    if tls is None:
        return None
    return control_pb2.ListenRequest.Tls(
        server_key=tls.server_key,
        server_cert=tls.server_cert,
        custom_ca=tls.custom_ca,
        client_verify=tls.client_verify,
    )
