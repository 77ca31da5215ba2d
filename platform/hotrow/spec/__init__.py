"""Frozen descriptions of tables and features, which the layer, export and server share.

The names are those of keras-rs. A feature points at its table; features that point at one table
share its rows.
"""

from hotrow.spec.admission import FILTERS, Admission, Expiry
from hotrow.spec.as_dict import table_from_dict, table_to_dict
from hotrow.spec.cache import POLICIES, Cache
from hotrow.spec.initializers import INITIALIZERS, Constant, Initializer, Normal, Uniform
from hotrow.spec.optimizers import (
    OPTIMIZERS,
    SGD,
    SMALL_START,
    Adagrad,
    Adam,
    Ftrl,
    Momentum,
    RowwiseAdagrad,
    TableOptimizer,
)
from hotrow.spec.schedules import KERAS_SCHEDULES, LearningRate, Schedule
from hotrow.spec.staleness import Staleness
from hotrow.spec.tables import (
    COMBINERS,
    DTYPES,
    SHARDINGS,
    Combiner,
    FeatureConfig,
    RowDtype,
    Sharding,
    TableConfig,
)

__all__ = [
    "COMBINERS",
    "DTYPES",
    "FILTERS",
    "INITIALIZERS",
    "KERAS_SCHEDULES",
    "OPTIMIZERS",
    "POLICIES",
    "SGD",
    "SHARDINGS",
    "SMALL_START",
    "Adagrad",
    "Adam",
    "Admission",
    "Cache",
    "Combiner",
    "Constant",
    "Expiry",
    "FeatureConfig",
    "Ftrl",
    "Initializer",
    "LearningRate",
    "Momentum",
    "Normal",
    "RowDtype",
    "RowwiseAdagrad",
    "Schedule",
    "Sharding",
    "Staleness",
    "TableConfig",
    "TableOptimizer",
    "Uniform",
    "table_from_dict",
    "table_to_dict",
]
