"""`SourceUrl`: the URL of a source of events."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError, nearest
from hotrow.store.access import StoreAccess, read_access

_REDIS = "?stream=NAME[&stream=NAME]...[&group=NAME]"
_FORMS = {
    "file": "file:PATH",
    "replay": "replay:PATH[,PATH]...[?speed=X|max]",
    "redis": f"redis://HOST[:PORT][/DB]{_REDIS}",
    "rediss": f"rediss://HOST[:PORT][/DB]{_REDIS}",
    "redis+cluster": f"redis+cluster://HOST[:PORT],...{_REDIS}",
    "rediss+cluster": f"rediss+cluster://HOST[:PORT],...{_REDIS}",
    "redis+sentinel": f"redis+sentinel://HOST[:PORT],.../SERVICE[/DB]{_REDIS}",
    "rediss+sentinel": f"rediss+sentinel://HOST[:PORT],.../SERVICE[/DB]{_REDIS}",
    "kafka": "kafka://BROKER:PORT[,BROKER:PORT]/TOPIC[?group=NAME]",
}

_SHOWN = ("stream", "group", "gaps", "speed", "config")


@dataclass(frozen=True)
class SourceUrl:
    """A parsed URL.

    Attributes:
        scheme: what stands before the first colon.
        base: the URL without its parameters.
        parameters: (name, value) of each, in order.
        path: what stands behind the scheme; without the slashes of an empty host.
    """

    scheme: str
    base: str
    parameters: tuple[tuple[str, str], ...]
    path: str

    @property
    def shown(self) -> str:
        """The URL for messages, without a password."""
        head, at, tail = self.base.rpartition("@")
        user = head.partition("://")[2].partition(":")[0]
        base = f"{self.scheme}://{user}@{tail}" if at else tail
        # Others may be passwords that someone thought to give here.
        query = "&".join(f"{name}={value}" for name, value in self.parameters if name in _SHOWN)
        return f"{base}?{query}" if query else base

    @property
    def paths(self) -> list[str]:
        """The paths of several files."""
        return [_local(self.scheme, path) for path in self.path.split(",")]

    def values(self, name: str) -> list[str]:
        """Returns the values of a parameter."""
        return [value for other, value in self.parameters if other == name]

    def value(self, name: str) -> str:
        """Returns the last value of a parameter; "": there is none."""
        return (self.values(name) or [""])[-1]

    def require_only(self, *legal: str) -> None:
        """Checks that there are no other parameters.

        Raises:
            InvalidArgumentError: there is one.
        """
        for name, _ in self.parameters:
            if name not in legal:
                known = ", ".join(legal) or "none"
                raise self.error(
                    f"unknown parameter {name!r}{nearest(name, legal)}; legal: {known}"
                )

    def fails_on_gaps(self) -> bool:
        """Returns whether events that were deleted unread are an error, by the parameter `gaps`.

        Raises:
            InvalidArgumentError: it is neither `fail` nor `report`.
        """
        gaps = self.value("gaps") or "fail"
        if gaps not in ("fail", "report"):
            raise self.error(f"gaps {gaps!r}: must be fail or report")
        return gaps == "fail"

    def access(self, default: StoreAccess) -> StoreAccess:
        """Returns the credentials that the URL names files of, or else the default.

        Raises:
            NotFoundError, PermissionDeniedError, InvalidArgumentError: as `read_access`.
        """
        files = {name: self.value(name) for name in ("password_file", "ca", "cert", "key")}
        if not any(files.values()):
            return default
        return read_access(
            password_file=files["password_file"],
            ca_file=files["ca"],
            cert_file=files["cert"],
            key_file=files["key"],
        )

    def error(self, why: str) -> InvalidArgumentError:
        """Returns the error of an URL that is not legal."""
        return InvalidArgumentError(f"online.source {self.shown}: {why} ({_FORMS[self.scheme]})")


def parse_source_url(text: str) -> SourceUrl:
    """Returns a parsed URL.

    Raises:
        InvalidArgumentError: it has an unknown scheme, or no path of this machine.
    """
    scheme, colon, _ = text.partition(":")
    if not colon or scheme not in _FORMS:
        hint = nearest(scheme, _FORMS) if colon else ""
        shown = f"{scheme}:..." if colon else repr(text)
        legal = ", ".join(_FORMS.values())
        raise InvalidArgumentError(f"online.source {shown}: no URL of events{hint}; legal: {legal}")
    base, _, query = text.partition("?")
    path = base.partition(":")[2]
    if scheme in ("file", "replay"):
        path = path if scheme == "replay" else _local(scheme, path)
    parameters = urllib.parse.parse_qsl(query, keep_blank_values=True)
    return SourceUrl(scheme, base, tuple(parameters), path)


def _local(scheme: str, path: str) -> str:
    """Returns the path of an URL of a file: with or without the slashes of an empty host."""
    if not path or (path.startswith("//") and not path.startswith("///")):
        raise InvalidArgumentError(
            f"online.source {scheme}:{path}: no path of this machine ({_FORMS[scheme]})"
        )
    return path.removeprefix("//")
