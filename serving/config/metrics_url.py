"""Where others find a server's page of metrics."""

from __future__ import annotations

from hotrow.serving.config.options import ServeOptions

HOST = "{host}"
"""In a URL: the address of this machine, which depends on the store's network."""

_EVERY_INTERFACE = ("", "0.0.0.0", "::")


def metrics_url(
    options: ServeOptions, path: str | None, *, rest_tls: bool, admin_host: str, admin_tls: bool
) -> str:
    """Returns the URL of the page of metrics, with `HOST` for a machine's own; "": there is none.

    Args:
        options: of the process.
        path: of the page; None: there is none.
        rest_tls: whether the REST port speaks TLS.
        admin_host: address that the admin port listens on.
        admin_tls: whether the admin port speaks TLS.
    """
    if path is None:
        return ""
    if port := options.admin.admin_port:
        host = HOST if admin_host in _EVERY_INTERFACE else admin_host
        host = f"[{host}]" if ":" in host else host
        return f"{_scheme(admin_tls)}://{host}:{port}{path}"
    if port := options.rest_api_port:
        return f"{_scheme(rest_tls)}://{HOST}:{port}{path}"
    return ""


def _scheme(tls: bool) -> str:
    return "https" if tls else "http"
