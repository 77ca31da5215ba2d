"""Flags of the port for reloads and metrics."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True)
class AdminOptions:
    """Flags of the admin port; TF Serving has none.

    Attributes:
        admin_port: TCP port; 0: reloads and metrics are answered on the ports of clients.
        admin_host: the name or address to listen on; None: every interface if clients show a token
            or a certificate, else localhost.
        admin_token_file: a token on each line; a client shows one of them. "": no token is needed.
        admin_ssl_config_file: text SSLConfig; "": no TLS.
    """

    admin_port: int = 0
    admin_host: str | None = None
    admin_token_file: str = ""
    admin_ssl_config_file: str = ""

    def __post_init__(self) -> None:
        """Refuses values that cannot be served.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
        """
        if not 0 <= self.admin_port <= 65535:
            raise InvalidArgumentError(
                f"--admin_port {self.admin_port} is out of range; give a number from 0 to 65535"
            )
        for field in fields(self)[1:]:
            if getattr(self, field.name) and not self.admin_port:
                raise InvalidArgumentError(
                    f"--{field.name} is given without --admin_port; give the port, too"
                )
