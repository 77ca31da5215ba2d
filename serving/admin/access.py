"""Who may use the admin port, and what only it answers."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from hotrow.serving.admin.tokens import Tokens
from hotrow.serving.config.admin_options import AdminOptions
from hotrow.serving.config.tls import Tls, read_tls
from hotrow.serving.data_plane.taken_port import take_port_of
from hotrow.serving.lifecycle.model_service import RELOAD
from hotrow.serving.wire.status import Code, RequestError

_LOCAL = "localhost"
_LOOPBACK = (_LOCAL, "127.0.0.1", "::1")


@dataclass(frozen=True)
class AdminAccess:
    """`AdminOptions` with its files read.

    Attributes:
        port: TCP port.
        host: the name or address to listen on; "": every interface.
        tokens: None: no token is needed.
        tls: None for plain connections.
    """

    port: int
    host: str
    tokens: Tokens | None
    tls: Tls | None

    @staticmethod
    def read(options: AdminOptions) -> AdminAccess | None:
        """Returns what the flags and their files say; None: there is no admin port.

        Raises:
            HotrowError: a file cannot be used.
        """
        if not options.admin_port:
            return None
        token_file, tls_file = options.admin_token_file, options.admin_ssl_config_file
        tokens = Tokens(Path(token_file)) if token_file else None
        tls = read_tls("--admin_ssl_config_file", tls_file) if tls_file else None
        host = options.admin_host
        if host is None:
            guarded = tokens is not None or (tls is not None and tls.client_verify)
            host = "" if guarded else _LOCAL
        return AdminAccess(options.admin_port, host, tokens, tls)

    def weakness(self) -> str:
        """Returns what an operator should know of these settings; "": nothing."""
        if self.host in _LOOPBACK:
            return ""
        certificates = self.tls is not None and self.tls.client_verify
        if self.tokens is None and not certificates:
            return (
                f"--admin_host {self.host}: everybody who reaches it may reload models; give "
                "--admin_token_file, or certificates of clients in --admin_ssl_config_file"
            )
        if self.tls is None:
            return (
                "the tokens of the admin port cross the network unencrypted; give "
                "--admin_ssl_config_file, or --admin_host=localhost"
            )
        return ""

    def take_port(self) -> list[socket.socket]:
        """Returns bound sockets; they do not listen yet.

        Raises:
            UnavailableError: the port is taken or not allowed.
        """
        return take_port_of(self.host, self.port, "--admin_port")

    def accepts(self, authorization: str | None) -> bool:
        """Returns whether a request with this header `authorization` may be answered."""
        return self.tokens is None or self.tokens.accept(authorization)

    def check(self, method: str, authorization: str | None) -> None:
        """Refuses a call of the admin port without a valid token.

        Args:
            method: ignored; all methods need one.
            authorization: the header.

        Raises:
            RequestError: UNAUTHENTICATED.
        """
        if not self.accepts(authorization):
            raise RequestError(
                Code.UNAUTHENTICATED,
                "the admin port needs a token of --admin_token_file; send it as 'authorization: "
                "Bearer TOKEN'",
            )


def check_public(method: str, authorization: str | None) -> None:
    """Refuses a call on the ports of clients that only the admin port answers.

    Args:
        method: of ModelService.
        authorization: ignored; no token opens it there.

    Raises:
        RequestError: PERMISSION_DENIED.
    """
    if method == RELOAD:
        raise RequestError(
            Code.PERMISSION_DENIED,
            f"{RELOAD} is answered on the port of --admin_port only; this server has one",
        )
