"""The admin port of a trainer: the gRPC service, the page of metrics, and who may use them."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from pathlib import Path
from types import TracebackType

from hotrow.admin.access import AdminAccess, AdminOptionNames
from hotrow.admin.address import join_address, split_address
from hotrow.admin.admin_port import AdminPort
from hotrow.admin.metrics_request import MetricsPage
from hotrow.admin.run_address import ADMIN_FILE, RunAddress
from hotrow.admin.tokens import Tokens
from hotrow.config.online import OnlineConfig
from hotrow.store.process_identity import identity_of
from hotrow.tls import read_tls
from hotrow.trainer.online.admin.control import Control
from hotrow.trainer.online.admin.metrics import metrics_page
from hotrow.trainer.online.admin.service import OnlineService

METRICS_PATH = "/metrics"

_LOG = logging.getLogger(__name__)
_NAMES = AdminOptionNames(
    port="online.admin",
    host="online.admin",
    token_file="online.admin_token_file",
    ssl_config_file="online.admin_ssl_config_file",
    power="pause, resume and roll back the trainer",
)


def read_admin_access(config: OnlineConfig) -> AdminAccess | None:
    """Returns what the configuration and its files say; None: there is no admin service.

    Raises:
        HotrowError: a file cannot be used.
    """
    if config.admin is None:
        return None
    host, port = split_address(config.admin)
    token_file, tls_file = config.admin_token_file, config.admin_ssl_config_file
    tokens = Tokens(Path(token_file), _NAMES.token_file) if token_file else None
    tls = read_tls(_NAMES.ssl_config_file, tls_file) if tls_file else None
    return AdminAccess(port, host, tokens, tls, _NAMES)


class TrainerAdmin:
    """The running admin port of a trainer; use it in a `with` statement.

    Attributes:
        address: `host:port` at which clients reach it.
    """

    def __init__(self, access: AdminAccess, control: Control, run_dir: Path) -> None:
        """Listens, and writes the address into the run's directory.

        Args:
            access: who may use it.
            control: the trainer.
            run_dir: directory of the run.

        Raises:
            UnavailableError: the port is taken or not allowed.
            OSError: the file with the address cannot be written.
        """
        self._file = run_dir / ADMIN_FILE
        with contextlib.ExitStack() as stack:
            taken = access.take_port()
            port = taken[0].getsockname()[1]
            folder = tempfile.mkdtemp(prefix="hotrow-admin-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            path = f"{folder}/grpc"
            service = OnlineService(control, access.check, f"unix:{path}")
            stack.callback(service.stop)
            context = access.tls.context() if access.tls is not None else None
            page = MetricsPage(
                METRICS_PATH,
                lambda: metrics_page(control.status()),
                access.accepts,
                "hotrow.v1.OnlineTrainer",
            )
            stack.callback(AdminPort(taken, context, path, page).stop)
            self.address = join_address(_reachable(access.host), port)
            RunAddress(
                self.address,
                access.tls is not None,
                access.tokens is not None,
                identity_of(os.getpid()),
            ).write(run_dir)
            self._running = stack.pop_all()
        if weakness := access.weakness():
            _LOG.warning(weakness)

    def stop(self) -> None:
        """Aborts running calls, closes the port and removes the file with the address."""
        self._file.unlink(missing_ok=True)
        self._running.close()

    def __enter__(self) -> TrainerAdmin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _reachable(host: str) -> str:
    """Returns the name by which clients reach an address on which a port listens."""
    if host not in ("", "0.0.0.0", "::"):
        return host
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
