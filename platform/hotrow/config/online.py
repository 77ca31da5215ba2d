"""The section `online`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hotrow.admin.address import split_address
from hotrow.config.section import Section, problem
from hotrow.errors import InvalidArgumentError
from hotrow.store.spec import MOST_SHARDS
from hotrow.store.url import parse_store_url


class JoinConfig(Section):
    """Labels that arrive later than the rows that they belong to.

    A stream has rows (impressions) and labels (clicks, purchases). A label names the row's key. A
    row whose label arrives within the window is trained with it, at once; one without is trained as
    a negative example when the window is over, by event time.

    Attributes:
        key: column that names a row, in rows and in labels.
        window_seconds: how long a row waits for its label, in event time.
        most_rows: rows that may wait in memory; more of them wait in a file.
        most_disk_rows: rows that may wait in the file; when it is full, the oldest rows are trained
            as negatives before their time, and counted.
    """

    key: str = Field(min_length=1)
    window_seconds: float = Field(default=600.0, gt=0)
    most_rows: int = Field(default=1_000_000, ge=1)
    most_disk_rows: int = Field(default=10_000_000, ge=0)


class OnlineConfig(Section):
    """Training on events as they come, and publishing to running servers.

    Attributes:
        source: URL of the events; None: no online training. `file:`, `replay:`, `redis:`,
            `rediss:`, `redis+cluster:` or `kafka:`.
        format: how an event is written: a JSON object of column names and values, or a line in the
            format of the section `data`.
        time: column of the event time, seconds or milliseconds since 1970, or ISO 8601; None: an
            event has the time at which the source received it.
        late_seconds: how much older than the newest event an event may be; None: any age.
        late: what becomes of an older one: it is trained like others, or goes to the dead letters.
        dead_letter_bytes: size of the files of bad events; further ones are only counted.
        join: labels that arrive later; None: each event has its label.
        max_batch_seconds: after this time a batch is trained even if it is not full.
        models: folder of all models, as `platform export --to`; None: nothing is published.
        model: name of the model; None: the run's name.
        store: URL of the store of the rows, as `platform export --store`.
        store_shards: virtual shards of the rows in the store, a power of two. A cut has a block in
            each shard that it changes, so few are cheaper; a large Redis Cluster needs more.
        publish_seconds: time between two cuts.
        publish_rows: also publish a cut when about this many rows have changed; None: by time only.
        publish_dense_seconds: time between two cuts with dense weights; None: each has them.
        fold_seconds: how long published cuts are collected before they are merged into the rows of
            the store, all at once.
        max_hold_seconds: how long a server may keep cuts from being folded; None: for any time.
        window_seconds: length of a window of the progressive metrics.
        frozen: whether to score events with the last full export, too, for comparison.
        canary: data file whose rows trainer and servers score for each cut; None: none.
        canary_change: how much the mean score may change from one cut to the next.
        canary_auc_drop: how far the canary's AUC may fall below that of the last good cut.
        canary_servers: gRPC addresses of servers whose scores are compared with the trainer's.
        canary_tolerance: how far a server's score may differ from the trainer's.
        admin: address of the admin service and metrics, `host:port`; port 0 chooses a free one,
            and no host stands for every interface. None: there is no admin service.
        admin_token_file: file with a token on each line, one of which clients must send; None: any
            client may call.
        admin_ssl_config_file: text SSLConfig, as of `platform serve`; None: no TLS.
    """

    source: str | None = Field(default=None, min_length=1)
    format: Literal["json", "data"] = "json"
    time: str | None = Field(default=None, min_length=1)
    late_seconds: float | None = Field(default=None, ge=0)
    late: Literal["train", "dead_letter"] = "train"
    dead_letter_bytes: int = Field(default=1 << 30, ge=0)
    join: JoinConfig | None = None
    max_batch_seconds: float = Field(default=0.2, gt=0)
    models: str | None = Field(default=None, min_length=1)
    model: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    store: str | None = Field(default=None, min_length=1)
    store_shards: int = Field(default=32, ge=1)
    publish_seconds: float = Field(default=1.0, gt=0)
    publish_rows: int | None = Field(default=None, ge=1)
    publish_dense_seconds: float | None = Field(default=None, ge=0)
    fold_seconds: float = Field(default=5.0, gt=0)
    max_hold_seconds: float | None = Field(default=30.0, ge=0)
    window_seconds: float = Field(default=60.0, gt=0)
    frozen: bool = True
    canary: str | None = Field(default=None, min_length=1)
    canary_change: float | None = Field(default=0.5, gt=0)
    canary_auc_drop: float | None = Field(default=0.1, gt=0)
    canary_servers: tuple[str, ...] = ()
    canary_tolerance: float = Field(default=1e-4, gt=0)
    admin: str | None = Field(default=None, min_length=1)
    admin_token_file: str | None = Field(default=None, min_length=1)
    admin_ssl_config_file: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _publishes_somewhere(self) -> OnlineConfig:
        if (self.models is None) != (self.store is None):
            given, missing = ("models", "store") if self.store is None else ("store", "models")
            raise problem(
                f"{given} without {missing}: publishing needs both, the folder of models and the "
                "URL of the store"
            )
        if self.store is not None:
            try:
                parse_store_url("store", self.store)
            except InvalidArgumentError as err:
                raise problem(str(err)) from None
        if self.join is not None and self.time is None:
            raise problem("join without time: windows are of event time; set online.time")
        if self.canary_servers and self.canary is None:
            raise problem("canary_servers without canary: name the data file with online.canary")
        for name in ("admin_token_file", "admin_ssl_config_file"):
            if getattr(self, name) is not None and self.admin is None:
                raise problem(f"{name} without admin: set online.admin")
        if self.store_shards & (self.store_shards - 1) or self.store_shards > MOST_SHARDS:
            raise problem(
                f"store_shards {self.store_shards}: must be a power of two from 1 to {MOST_SHARDS}"
            )
        if self.admin is not None:
            try:
                split_address(self.admin)
            except ValueError as err:
                raise problem(f"admin {self.admin!r} {err}") from None
        return self
