"""Who may use a port for operators, and where it listens."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from hotrow.admin.address import LOOPBACK
from hotrow.admin.taken_port import take_port_of
from hotrow.admin.tokens import Tokens
from hotrow.errors import UnauthenticatedError
from hotrow.tls import Tls


@dataclass(frozen=True)
class AdminOptionNames:
    """What a process calls the options of the port, for messages.

    Attributes:
        port: the option with the port's number.
        host: the option with the name or address to listen on.
        token_file: the option with the file of tokens.
        ssl_config_file: the option with the keys and certificates.
        power: what a client can do, such as "reload models".
    """

    port: str
    host: str
    token_file: str
    ssl_config_file: str
    power: str


@dataclass(frozen=True)
class AdminAccess:
    """Settings of the port, with their files read.

    Attributes:
        port: TCP port; 0: the system chooses one.
        host: the name or address to listen on; "": every interface.
        tokens: None: no token is needed.
        tls: None for plain connections.
        names: of the options.
    """

    port: int
    host: str
    tokens: Tokens | None
    tls: Tls | None
    names: AdminOptionNames

    def weakness(self) -> str:
        """Returns what an operator should know of these settings; "": nothing."""
        if self.host in LOOPBACK:
            return ""
        certificates = self.tls is not None and self.tls.client_verify
        if self.tokens is None and not certificates:
            return (
                f"{self.names.host} {self.host}: everybody who reaches it may {self.names.power}; "
                f"give {self.names.token_file}, or certificates of clients in "
                f"{self.names.ssl_config_file}"
            )
        if self.tls is None:
            return (
                "the tokens of the admin port cross the network unencrypted; give "
                f"{self.names.ssl_config_file}, or the host localhost in {self.names.host}"
            )
        return ""

    def take_port(self) -> list[socket.socket]:
        """Returns bound sockets; they do not listen yet.

        Raises:
            UnavailableError: the port is taken or not allowed.
        """
        return take_port_of(self.host, self.port, self.names.port)

    def accepts(self, authorization: str | None) -> bool:
        """Returns whether a request with this header `authorization` may be answered."""
        return self.tokens is None or self.tokens.accept(authorization)

    def check(self, authorization: str | None) -> None:
        """Refuses a call without a valid token.

        Args:
            authorization: the header.

        Raises:
            UnauthenticatedError: the header has no valid token.
        """
        if not self.accepts(authorization):
            raise UnauthenticatedError(
                f"the admin port needs a token of {self.names.token_file}; send it as "
                "'authorization: Bearer TOKEN'"
            )
