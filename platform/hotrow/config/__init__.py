"""The configuration of a run: frozen sections, read from YAML and validated in one place."""

from hotrow.config.admission import AdmissionConfig, ExpiryConfig
from hotrow.config.cache import CacheConfig
from hotrow.config.data import CRITEO_DENSE, CRITEO_SPARSE, DataConfig
from hotrow.config.features import (
    MISSING_BUCKET,
    DenseColumn,
    DenseGroup,
    FeaturesConfig,
    SparseColumn,
    SparseGroup,
)
from hotrow.config.learning_rate import ScheduleConfig, learning_rate_as_spec
from hotrow.config.loader import load_config, parse_config
from hotrow.config.model import DlrmConfig, LogisticConfig, ModelConfig, WideDeepConfig
from hotrow.config.online import OnlineConfig
from hotrow.config.parallel import ParallelConfig, ShardingName
from hotrow.config.run import RunConfig
from hotrow.config.tables import InitializerConfig, TableSection
from hotrow.config.training import (
    CheckpointConfig,
    EarlyStoppingConfig,
    EmbeddingsConfig,
    OptimizerConfig,
    TrainConfig,
)

__all__ = [
    "CRITEO_DENSE",
    "CRITEO_SPARSE",
    "MISSING_BUCKET",
    "AdmissionConfig",
    "CacheConfig",
    "CheckpointConfig",
    "DataConfig",
    "DenseColumn",
    "DenseGroup",
    "DlrmConfig",
    "EarlyStoppingConfig",
    "EmbeddingsConfig",
    "ExpiryConfig",
    "FeaturesConfig",
    "InitializerConfig",
    "LogisticConfig",
    "ModelConfig",
    "OnlineConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "RunConfig",
    "ScheduleConfig",
    "ShardingName",
    "SparseColumn",
    "SparseGroup",
    "TableSection",
    "TrainConfig",
    "WideDeepConfig",
    "learning_rate_as_spec",
    "load_config",
    "parse_config",
]
