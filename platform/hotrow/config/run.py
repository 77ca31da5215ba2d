"""The whole configuration of a training run."""

from __future__ import annotations

from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator, model_validator

from hotrow.config.cache import CacheConfig
from hotrow.config.data import CRITEO_DENSE, CRITEO_SPARSE, DataConfig
from hotrow.config.export import ExportConfig
from hotrow.config.features import DEFAULT_TABLE, WIDE, FeaturesConfig
from hotrow.config.model import DlrmConfig, LogisticConfig, ModelConfig
from hotrow.config.online import OnlineConfig
from hotrow.config.parallel import ParallelConfig
from hotrow.config.section import Section, problem
from hotrow.config.tables import TableSection, inherit_settings
from hotrow.config.training import (
    CheckpointConfig,
    EmbeddingsConfig,
    OptimizerConfig,
    TrainConfig,
)
from hotrow.errors import nearest


class RunConfig(Section):
    """The full configuration of a run; made by `load_config` and immutable.

    Attributes:
        name: names run directories; letters, digits, `.`, `_` and `-`.
        seed: seed of initial values, shuffling and dropout.
        tables: settings by table name; `default` and `wide` always exist. Read them with
            `table_settings`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataConfig
    features: FeaturesConfig
    tables: dict[str, TableSection] = Field(default_factory=dict, validate_default=True)
    model: Annotated[ModelConfig, Field(discriminator="arch")]
    optimizer: OptimizerConfig = OptimizerConfig()
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    train: TrainConfig = TrainConfig()
    cache: CacheConfig = CacheConfig()
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    export: ExportConfig = ExportConfig()
    online: OnlineConfig = OnlineConfig()

    @field_validator("tables", mode="before")
    @classmethod
    def _inherit(cls, tables: Any) -> Any:
        return inherit_settings(tables) if isinstance(tables, dict) else tables

    @model_validator(mode="after")
    def _columns_exist(self) -> RunConfig:
        dense = [column.name for column in self.features.dense_columns()]
        columns = dense + [column.name for column in self.features.sparse_columns()]
        if self.data.label in columns:
            raise problem(
                f"features: column {self.data.label!r} is the label; a model that reads it "
                "learns nothing; leave it out"
            )
        names = self.data.columns
        if names is not None and self.data.label not in names:
            raise problem(
                f"data: label {self.data.label!r} is not one of columns {', '.join(names)}; "
                "name the label's column"
            )
        if self.data.weight is not None and self.data.weight in (*columns, self.data.label):
            what = "the label" if self.data.weight == self.data.label else "a feature"
            raise problem(
                f"data.weight: column {self.data.weight!r} is {what}, too; a row's weight is "
                "neither; name another column"
            )
        known = self.data.known_columns()
        for column in columns if known is not None else ():
            if column not in (known or ()):
                raise problem(
                    f"features: no column {column!r} in the data{nearest(column, known or ())}; "
                    f"legal: {', '.join(known or ())}"
                )
        if self.data.format == "criteo":
            for column in dense:
                if column in CRITEO_SPARSE:
                    raise problem(
                        f"features.dense: column {column!r} holds texts; name it under "
                        f"features.sparse; legal here: {', '.join(CRITEO_DENSE)}"
                    )
        return self

    @model_validator(mode="after")
    def _libsvm_is_pooled(self) -> RunConfig:
        for column in self.features.sparse_columns():
            if self.data.format == "libsvm" and column.lists:
                raise problem(
                    f"features: lists of column {column.name!r} are for Parquet files, the format "
                    "here is 'libsvm', whose rows are lists of ids anyway; leave lists out"
                )
            if self.data.format == "libsvm" and column.combiner is None:
                raise problem(
                    f"features: column {column.name!r} of a LibSVM file has several keys a row; "
                    "its combiner must be sum, mean or sqrtn"
                )
        return self

    @model_validator(mode="after")
    def _tables_exist(self) -> RunConfig:
        sparse = self.features.sparse_columns()
        names = list(dict.fromkeys(column.table for column in sparse))
        for name in names:
            if name in (DEFAULT_TABLE, WIDE) or name.endswith(f"/{WIDE}"):
                raise problem(
                    f"features: table name {name!r} is taken ({DEFAULT_TABLE}, {WIDE} and "
                    f"<column>/{WIDE} have a meaning under `tables`); set `table` to another name"
                )
        legal = [DEFAULT_TABLE, WIDE, *names, *(f"{column.name}/{WIDE}" for column in sparse)]
        for name in self.tables:
            if name not in legal:
                raise problem(
                    f"tables: unknown table {name!r}{nearest(name, legal)}; legal: "
                    f"{', '.join(legal)}"
                )
        return self

    @model_validator(mode="after")
    def _cache_ratio_is_of_a_vocabulary(self) -> RunConfig:
        for table in self._tables_of_model() if self.cache.ratio is not None else ():
            if self.table_settings(table).vocabulary_size is None:
                raise problem(
                    f"cache.ratio: {self.cache.ratio} is a share of a table's "
                    f"vocabulary_size, and table {table!r} has none; set it under tables, or give "
                    "cache.rows or cache.bytes"
                )
        return self

    @model_validator(mode="after")
    def _best_is_measured(self) -> RunConfig:
        stopping, best = self.train.early_stopping, self.checkpoint.best
        if self.data.valid is None and (stopping is not None or best is not None):
            key = "checkpoint.best" if stopping is None else "train.early_stopping"
            raise problem(f"{key}: there is no validation file to measure; set data.valid")
        if stopping is not None and best not in (None, stopping.metric):
            raise problem(
                f"checkpoint.best: {best!r} is not {stopping.metric!r}, the metric of "
                "train.early_stopping; leave checkpoint.best out"
            )
        return self

    @model_validator(mode="after")
    def _dlrm_widths(self) -> RunConfig:
        if not isinstance(self.model, DlrmConfig):
            return self
        sparse, has_dense = self.features.sparse_columns(), bool(self.features.dense_columns())
        dims = sorted({column.dim for column in sparse})
        if len(dims) > 1:
            raise problem(
                f"features.sparse: dims {dims} differ; dlrm multiplies embeddings with each "
                "other and needs one dim"
            )
        if len(sparse) + has_dense < 2:
            raise problem(
                "model: dlrm needs at least two vectors to multiply (embeddings, and one for all "
                "dense columns); add columns or choose wide_deep or logistic"
            )
        if has_dense and self.model.bottom[-1:] != tuple(dims):
            raise problem(
                f"model.bottom: {list(self.model.bottom)} must end with the embeddings' dim "
                f"{dims[0]}"
            )
        return self

    def table_settings(self, table: str) -> TableSection:
        """Returns the settings of a table: its own, or else those of `wide` or `default`."""
        general = WIDE if table.endswith(f"/{WIDE}") else DEFAULT_TABLE
        return self.tables.get(table, self.tables[general])

    def _tables_of_model(self) -> list[str]:
        """Returns the names of the tables that the model will have."""
        columns = self.features.sparse_columns()
        deep = [] if isinstance(self.model, LogisticConfig) else [c.table for c in columns]
        wide = [] if isinstance(self.model, DlrmConfig) else [c.wide_table for c in columns]
        return list(dict.fromkeys([*deep, *wide]))

    def to_yaml(self) -> str:
        """Returns the resolved configuration, with every default, as YAML that loads again."""
        text: str = yaml.safe_dump(
            self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100
        )
        return text
