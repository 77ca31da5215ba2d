"""Certificates of Redis servers and their clients."""

from __future__ import annotations

from pathlib import Path

from certificates import Certificates
from redis_servers.process import Setting

from hotrow.store.access import StoreAccess


def certificates_beside(folder: Path) -> Certificates:
    """Makes certificates in a new folder beside this one."""
    home = folder.with_name(f"{folder.name}-certificates")
    home.mkdir(parents=True)
    return Certificates(home)


def tls_settings(certificates: Certificates) -> dict[str, Setting]:
    """Returns the lines of redis.conf that name a server's files."""
    home = certificates.folder
    files = {"cert": "server.cert", "key": "server.key", "ca-cert": "ca.cert"}
    return {f"tls-{name}-file": home / file for name, file in files.items()}


def tls_of_client(certificates: Certificates) -> dict[str, object]:
    """Returns the options for redis-py."""
    home = certificates.folder
    files = {"ca_certs": "ca.cert", "certfile": "client.cert", "keyfile": "client.key"}
    return {"ssl": True} | {f"ssl_{name}": str(home / file) for name, file in files.items()}


def access_with(certificates: Certificates, password: str = "") -> StoreAccess:
    """Returns the options for Hotrow."""
    home = certificates.folder
    files = [str(home / file) for file in ("ca.cert", "client.cert", "client.key")]
    return StoreAccess("", password, *files)


def flags_with(certificates: Certificates) -> list[str]:
    """Returns the same as flags of commands."""
    home = certificates.folder
    files = {"ca": "ca.cert", "cert": "client.cert", "key": "client.key"}
    return [f"--store_{name}={home / file}" for name, file in files.items()]
