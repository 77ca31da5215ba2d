"""The server's admin port: its settings, and what only it answers."""

from __future__ import annotations

from pathlib import Path

from hotrow.admin.access import AdminAccess, AdminOptionNames
from hotrow.admin.tokens import Tokens
from hotrow.serving.config.admin_options import AdminOptions
from hotrow.serving.lifecycle.model_service import RELOAD
from hotrow.serving.wire.status import Code, RequestError
from hotrow.tls import read_tls

_NAMES = AdminOptionNames(
    port="--admin_port",
    host="--admin_host",
    token_file="--admin_token_file",
    ssl_config_file="--admin_ssl_config_file",
    power="reload models",
)


def read_admin_access(options: AdminOptions) -> AdminAccess | None:
    """Returns what the flags and their files say; None: there is no admin port.

    Raises:
        HotrowError: a file cannot be used.
    """
    if not options.admin_port:
        return None
    token_file, tls_file = options.admin_token_file, options.admin_ssl_config_file
    tokens = Tokens(Path(token_file), _NAMES.token_file) if token_file else None
    tls = read_tls(_NAMES.ssl_config_file, tls_file) if tls_file else None
    host = options.admin_host
    if host is None:
        guarded = tokens is not None or (tls is not None and tls.client_verify)
        host = "" if guarded else "localhost"
    return AdminAccess(options.admin_port, host, tokens, tls, _NAMES)


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
