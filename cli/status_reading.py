"""Reads the parts of `platform status`, each as far as it answers."""

from __future__ import annotations

import contextlib
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.cli.status_report import Bounds, Problem, Report, unanswered
from hotrow.cli.status_servers import ServerPages, page_url, server_problems, servers_part
from hotrow.cli.status_store import StoreStatus, live_generation, store_problems
from hotrow.cli.status_trainer import trainer_part, trainer_problems
from hotrow.cli.trainer_client import TrainerAccess
from hotrow.cli.trainer_place import TrainerPlace, check_place, find_trainer
from hotrow.config import load_config
from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.protos import online_pb2
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.row_store import RowStore

_CONFIG = "config.yaml"
_TRAINER_SECONDS = 5.0


@dataclass(frozen=True)
class Sought:
    """What to look at.

    Attributes:
        place: `RUN_DIR` or `HOST:PORT`; None: the trainer that the store names.
        store: URL of the store; None: the trainer's.
        model: its name; None: the trainer's.
        servers: addresses of pages of metrics, beside those in leases.
        trainer_access: how to call the trainer.
        store_access: credentials for the store.
        server_token: for pages of servers; "": none.
        server_tls: for https pages; None: the system's authorities.
        bounds: what counts as wrong.
    """

    place: str | None
    store: str | None
    model: str | None
    servers: tuple[str, ...]
    trainer_access: TrainerAccess
    store_access: StoreAccess
    server_token: str
    server_tls: ssl.SSLContext | None
    bounds: Bounds


class StatusReading:
    """Reads all parts again and again; use it in a `with` statement."""

    def __init__(self, sought: Sought) -> None:
        """Prepares it; nothing is called yet.

        Args:
            sought: what to look at.

        Raises:
            InvalidArgumentError: neither a place nor store and model, or the place is neither a
                directory nor an address.
        """
        if sought.place is None and not (sought.store and sought.model):
            raise InvalidArgumentError(
                "which trainer? Give RUN_DIR or HOST:PORT, or --store and --model"
            )
        if sought.place is not None:
            check_place(sought.place)
        self._sought = sought
        self._of_run = _of_run(sought.place)
        self._store: RowStore | None = None
        self._store_status: StoreStatus | None = None
        self._store_key = ("", "")
        self._pages: ServerPages | None = None

    def __enter__(self) -> StatusReading:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_store()

    def read(self) -> Report:
        """Returns all parts as they are now."""
        report = Report(time.time())
        status = self._read_trainer(report) if self._sought.place is not None else None
        self._read_store(report, status)
        if self._sought.place is None:
            self._read_named_trainer(report)
        self._read_servers(report)
        return report

    def _read_trainer(self, report: Report) -> online_pb2.TrainerStatus | None:
        assert self._sought.place is not None
        try:
            return self._ask(report, find_trainer(self._sought.place))
        except HotrowError as err:
            self._note_silence(report, err)
            return None

    def _ask(self, report: Report, place: TrainerPlace) -> online_pb2.TrainerStatus | None:
        """Adds a trainer's part; returns its status, None if it does not answer."""
        try:
            with place.client(self._sought.trainer_access) as client:
                status = client.status(_TRAINER_SECONDS)
        except HotrowError as err:
            self._note_silence(report, err)
            return None
        report.trainer = trainer_part(place.address, status)
        report.problems += trainer_problems(status, self._sought.bounds)
        return status

    def _note_silence(self, report: Report, err: HotrowError) -> None:
        report.trainer = unanswered(err)
        report.problems.append(Problem("trainer", report.trainer["why"], unanswered=True))

    def _read_named_trainer(self, report: Report) -> None:
        """Asks the trainer that the model's export lock names."""
        exporter = report.store["exporter"] if report.store and report.store["answers"] else None
        if exporter is not None and exporter["admin"]:
            self._ask(report, TrainerPlace(exporter["admin"]))

    def _read_store(self, report: Report, status: online_pb2.TrainerStatus | None) -> None:
        url = self._sought.store or self._of_run[0] or (status.publishing.store if status else "")
        model = self._sought.model or self._of_run[1] or (status.model if status else "")
        if not url or not model:
            return
        try:
            report.store = self._opened(url, model).read()
        except HotrowError as err:
            self._close_store()
            report.store = unanswered(err)
            report.problems.append(Problem("store", report.store["why"], unanswered=True))
            return
        report.problems += store_problems(report.store, self._sought.bounds)

    def _opened(self, url: str, model: str) -> StoreStatus:
        if self._store_status is None or self._store_key != (url, model):
            self._close_store()
            self._store = open_store(url, self._sought.store_access, option="store")
            self._store_status = StoreStatus(self._store, model)
            self._store_key = (url, model)
        return self._store_status

    def _close_store(self) -> None:
        if self._store is not None:
            with contextlib.suppress(HotrowError):
                self._store.close()
        self._store = self._store_status = None

    def _read_servers(self, report: Report) -> None:
        live = live_generation(report.store)
        leases = live["readers"] if live is not None else []
        named = [lease["metrics"] for lease in leases if lease["metrics"]] + [*self._sought.servers]
        addresses = dict.fromkeys(map(page_url, named))
        model = self._model_of(report)
        if self._pages is None or self._pages.model != model:
            sought = self._sought
            self._pages = ServerPages(model, sought.server_token, sought.server_tls)
        pages = self._pages.read(list(addresses))
        report.servers = servers_part(pages, live)
        report.problems += server_problems(report.servers, self._sought.bounds)

    def _model_of(self, report: Report) -> str:
        trainer = report.trainer
        named = trainer["model"] if trainer is not None and trainer["answers"] else ""
        return self._sought.model or self._of_run[1] or named


def _of_run(place: str | None) -> tuple[str, str]:
    """Returns store and model in a run's configuration; "" for what is not there."""
    if place is None or not (path := Path(place) / _CONFIG).is_file():
        return "", ""
    try:
        config: Any = load_config(path)
    except HotrowError:
        return "", ""  # of another version of Hotrow; the trainer says the same
    if config.online.store is None:
        return "", ""
    return config.online.store, config.online.model or config.name
