"""URLs of stores, in the form of commands and manifests."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hotrow.errors import InvalidArgumentError, nearest

REDIS_PORT = 6379
SENTINEL_PORT = 26379

_FORMS = {
    "file": "file:///DIR",
    "redis": "redis://HOST[:PORT][/DB]",
    "rediss": "rediss://HOST[:PORT][/DB]",
    "redis+unix": "redis+unix:///SOCKET[?db=DB]",
    "redis+cluster": "redis+cluster://HOST[:PORT],...",
    "rediss+cluster": "rediss+cluster://HOST[:PORT],...",
    "redis+sentinel": "redis+sentinel://HOST[:PORT],.../SERVICE[/DB]",
    "rediss+sentinel": "rediss+sentinel://HOST[:PORT],.../SERVICE[/DB]",
}
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:,]+))(?::(?P<port>\d*))?")


_DATABASE = re.compile(r"db=\d+")


class StoreKind(StrEnum):
    """The kind of a store: its number of servers, and how to find the one for a key."""

    FILE = "file"
    STANDALONE = "standalone"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True)
class StoreUrl:
    """A parsed URL. It contains no password.

    Attributes:
        text: the URL as given.
        kind: the kind of store.
        path: path of the folder (file) or of the Unix socket; else "".
        tls: whether Redis is reached over TLS.
        username: user of Redis; "" is its default user.
        hosts: (host, port) of servers, nodes or sentinels; not all need be given.
        database: number of the database.
        service: name of the service at Sentinel.
    """

    text: str
    kind: StoreKind
    path: str = ""
    tls: bool = False
    username: str = ""
    hosts: tuple[tuple[str, int], ...] = ()
    database: int = 0
    service: str = ""

    def __str__(self) -> str:
        return self.text


def parse_store_url(option: str, text: str) -> StoreUrl:
    """Returns a parsed URL.

    Args:
        option: the option that had the URL, for messages.
        text: the URL.

    Raises:
        InvalidArgumentError: the text is no such URL, or contains a password.
    """
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _FORMS:
        hint = nearest(scheme, _FORMS) if separator else ""
        # Everything after the last @ is free of passwords.
        shown = f"{scheme}://..." if separator else repr(text.rpartition("@")[2])
        legal = ", ".join(_FORMS.values())
        raise InvalidArgumentError(f"{option} {shown}: no URL of a store{hint}; legal: {legal}")
    return _Parser(option, scheme, rest).parsed()


class _Parser:
    """The parser of one URL; a class so that all methods can raise its messages."""

    def __init__(self, option: str, scheme: str, rest: str) -> None:
        self._option = option
        self._scheme = scheme
        # Splits at the last @, because an unquoted password may contain any character. A path may
        # contain an @, too, but only without a host before it.
        user, at, rest = ("", "", rest) if rest.startswith("/") else rest.rpartition("@")
        self._user, colon, _ = user.partition(":")
        shown_user = f"{self._user}@" if self._user else ""
        rest, _, self._query = rest.partition("?")
        # The query is hidden: redis-py accepts passwords there.
        harmless = f"?{self._query}" if _DATABASE.fullmatch(self._query) else ""
        self._shown = f"{scheme}://{shown_user}{rest}{harmless}"
        self._hosts, slash, path = rest.partition("/")
        self._path = slash + path
        if at and colon:
            raise self._error(
                "a password in a URL ends up in logs and manifests; leave it out and set "
                "HOTROW_STORE_PASSWORD, or give --store_password_file FILE"
            )

    def parsed(self) -> StoreUrl:
        base, _, kind = self._scheme.partition("+")
        tls = base == "rediss"
        user = urllib.parse.unquote(self._user)
        if self._scheme == "file":
            self._refuse_query()
            if self._hosts or len(self._path) < 2:
                raise self._error("the path must be absolute")
            return StoreUrl(self._shown, StoreKind.FILE, path=self._path)
        if kind == "unix":
            path = urllib.parse.unquote(self._path)
            if self._hosts or len(path) < 2:
                raise self._error("the path of the socket must be absolute")
            return StoreUrl(
                *(self._shown, StoreKind.STANDALONE, path),
                username=user,
                database=self._database(self._database_of_query()),
            )
        self._refuse_query()
        parts = [urllib.parse.unquote(part) for part in self._path.split("/")[1:]]
        if parts and parts[-1] == "":
            parts.pop()
        hosts = self._addresses(SENTINEL_PORT if kind == "sentinel" else REDIS_PORT)
        common: dict[str, Any] = {"tls": tls, "username": user, "hosts": hosts}
        if kind == "cluster":
            if parts:
                raise self._error("a cluster has only database 0; leave the path out")
            return StoreUrl(self._shown, StoreKind.CLUSTER, **common)
        if kind == "sentinel":
            if not parts:
                raise self._error("the name of the service is missing behind the hosts")
            service, *parts = parts
            common["service"] = service
        elif len(hosts) > 1:
            raise self._error(
                f"several hosts; {base}+cluster:// leads to a cluster, {base}+sentinel:// to "
                "a primary that sentinels know"
            )
        if len(parts) > 1:
            raise self._error("the path must be the number of a database")
        common["database"] = self._database(parts[0] if parts else "0")
        standing = StoreKind.SENTINEL if kind else StoreKind.STANDALONE
        return StoreUrl(self._shown, standing, **common)

    def _addresses(self, default_port: int) -> tuple[tuple[str, int], ...]:
        found = []
        for part in self._hosts.split(","):
            match = _HOST.fullmatch(part)
            if match is None:
                why = "empty" if not part else "an IPv6 address stands in [brackets]"
                raise self._error(f"the host {part!r} is not HOST or HOST:PORT ({why})")
            port = int(match["port"] or default_port)
            if not 1 <= port <= 65535:
                raise self._error(f"port {port}: must be 1 to 65535")
            found.append((match["six"] or match["name"], port))
        return tuple(found)

    def _database(self, text: str) -> int:
        if not text.isdecimal() or len(text) > 6:
            raise self._error(f"database {text!r}: must be a number from 0")
        return int(text)

    def _database_of_query(self) -> str:
        values = urllib.parse.parse_qsl(self._query, keep_blank_values=True)
        for name, _ in values:
            if name != "db":
                raise self._error(f"unknown parameter {name!r}{nearest(name, ['db'])}; legal: db")
        return values[-1][1] if values else "0"

    def _refuse_query(self) -> None:
        if self._query:
            raise self._error(
                "no '?' goes here; what TLS and passwords need are options (--store_ca, "
                "--store_password_file)"
            )

    def _error(self, why: str) -> InvalidArgumentError:
        form = _FORMS[self._scheme]
        return InvalidArgumentError(f"{self._option} {self._shown}: {why} ({form})")
