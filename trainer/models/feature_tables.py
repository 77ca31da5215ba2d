"""The embedding tables of a model, from its configuration."""

from __future__ import annotations

import hotrow
from hotrow.config import InitializerConfig, RunConfig, SparseColumn
from hotrow.config.features import WIDE
from hotrow.spec import Initializer


def model_features(config: RunConfig) -> list[hotrow.FeatureConfig]:
    """Returns the features of the configured model; `model.arch` determines them."""
    match config.model.arch:
        case "dlrm":
            return deep_features(config)
        case "logistic":
            return wide_features(config)
        case "wide_deep":
            return deep_features(config) + wide_features(config)


def column_of(feature: str) -> str:
    """Returns the sparse column whose keys a feature reads."""
    return feature.removesuffix(f"/{WIDE}")


def deep_features(config: RunConfig) -> list[hotrow.FeatureConfig]:
    """Returns one feature for each sparse column, with its name and the column's dim."""
    tables: dict[str, hotrow.TableConfig] = {}
    features = []
    for column in config.features.sparse_columns():
        table = tables.setdefault(column.table, _table(config, column.table, column.dim))
        features.append(_feature(column.name, table, column))
    return features


def wide_features(config: RunConfig) -> list[hotrow.FeatureConfig]:
    """Returns a feature of width 1 for each sparse column, with its own table: a linear model."""
    return [
        _feature(column.wide_table, _table(config, column.wide_table, 1), column)
        for column in config.features.sparse_columns()
    ]


def _feature(name: str, table: hotrow.TableConfig, column: SparseColumn) -> hotrow.FeatureConfig:
    return hotrow.FeatureConfig(name=name, table=table, combiner=column.combiner)


def _table(config: RunConfig, name: str, dim: int) -> hotrow.TableConfig:
    settings = config.table_settings(name)
    return hotrow.TableConfig(
        name=name,
        embedding_dim=dim,
        vocabulary_size=settings.vocabulary_size,
        initializer=_initializer(settings.initializer),
        optimizer=settings.optimizer_as_spec(),
        default_value=settings.default_value,
        dtype=settings.dtype,
        state_dtype=settings.state_dtype,
        admission=settings.admission.as_spec() if settings.admission else None,
        expiry=settings.expiry.as_spec() if settings.expiry else None,
        cache=config.cache.as_spec(),
    )


def _initializer(initializer: InitializerConfig) -> Initializer:
    if initializer.uniform is not None:
        return hotrow.Uniform(initializer.uniform)
    if initializer.normal is not None:
        return hotrow.Normal(initializer.normal)
    assert initializer.constant is not None
    return hotrow.Constant(initializer.constant)
