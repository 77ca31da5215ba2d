"""Keys and certificates of a port: the text SSLConfig of TensorFlow Serving."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hotrow.errors import InvalidArgumentError
from hotrow.protos import ssl_config_pb2
from hotrow.text_proto import read_text_proto


@dataclass(frozen=True)
class Tls:
    """PEM contents.

    Attributes:
        server_key: the private key.
        server_cert: its certificate, followed by intermediate certificates.
        custom_ca: CA certificates for clients; "" when clients need no certificate.
        client_verify: whether a client without such a certificate is refused.
    """

    server_key: str
    server_cert: str
    custom_ca: str
    client_verify: bool

    def context(self) -> ssl.SSLContext:
        """Returns the contents as a context for a server in this process.

        Raises:
            ssl.SSLError: a part is not PEM, or the key does not match the certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # `ssl` reads a key only from a file.
        with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
            key, certificate = Path(folder, "key"), Path(folder, "cert")
            key.write_text(self.server_key)
            certificate.write_text(self.server_cert)
            # Without the callback, OpenSSL would prompt for the passphrase of an encrypted key.
            context.load_cert_chain(certificate, key, password=lambda: b"")
        if self.client_verify:
            context.load_verify_locations(cadata=self.custom_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def read_tls(flag: str, path: str) -> Tls:
    """Returns the contents of a file.

    Args:
        flag: the flag that names the file, for messages.
        path: of the file.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it is not an SSLConfig, or its parts do not match.
    """
    config = read_text_proto(path, ssl_config_pb2.SSLConfig())
    if config.client_verify and not config.custom_ca:
        raise InvalidArgumentError(
            f"{flag} {path}: client_verify is true and custom_ca is empty, so no client could "
            "come in; give the certificates that sign those of clients"
        )
    tls = Tls(config.server_key, config.server_cert, config.custom_ca, config.client_verify)
    try:
        tls.context()
    except (ssl.SSLError, OSError) as err:
        raise InvalidArgumentError(
            f"{flag} {path}: server_key, server_cert or custom_ca cannot be used ({err}); give "
            "the contents of PEM files, a key without a password and its certificate"
        ) from err
    return tls
