"""Certificates made for a test: an authority, a server on this machine, a client."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Certificates:
    """PEM files `ca`, `server` and `client`, each `.key` and `.cert`, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req", "-x509", *self._key("ca"), "-subj", "/CN=test", "-days", "2")
        for name in ("server", "client"):
            self._openssl("req", *self._key(name), "-subj", f"/CN={name}")
            (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
            self._openssl(
                *("x509", "-req", "-in", f"{name}.cert", "-out", f"{name}.cert", "-days", "2"),
                *("-CA", "ca.cert", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"),
            )

    def text(self, name: str) -> str:
        """Returns what is in a file."""
        return (self.folder / name).read_text()

    def _key(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        return [*curve, "-keyout", f"{name}.key", "-out", f"{name}.cert"]

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)
