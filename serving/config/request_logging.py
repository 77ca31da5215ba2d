"""Which requests are logged, and where: `logging_config` of a model.

TensorFlow Serving leaves the collectors of records to its users; here one type writes files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorflow_serving.config.logging_config_pb2 import LoggingConfig
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

from hotrow.serving.wire.status import Code, RequestError, invalid

TYPES = ("", "file")
"""Types of a `log_collector_config`; both write TFRecord files."""

Logging = Mapping[str, LoggingConfig]
"""How requests are logged, by model; only for models that log."""


def check_logging(model: ModelConfig) -> None:
    """Refuses an invalid logging configuration of a model.

    Raises:
        RequestError: NOT_FOUND for an unknown type of collector, INVALID_ARGUMENT for anything
            else.
    """
    if not model.HasField("logging_config"):
        return
    config = model.logging_config
    collector = config.log_collector_config
    if collector.type not in TYPES:
        legal = " or ".join(f'"{name}"' for name in TYPES)
        raise RequestError(
            Code.NOT_FOUND,
            f"Cannot find LogCollector::Factory for type: {collector.type}; model {model.name} "
            f"needs {legal}",
        )
    if config.HasField("custom_logging_config"):
        raise invalid(
            f"model {model.name}: custom_logging_config of type "
            f"{config.custom_logging_config.type_url!r} is not known here; leave it out"
        )
    sampling = config.sampling_config
    others = [field.name for field, _ in sampling.ListFields() if field.name != "sampling_rate"]
    if others:
        raise invalid(
            f"model {model.name}: {others[0]} of its sampling_config is not known here; give "
            "sampling_rate alone"
        )
    rate = sampling.sampling_rate
    if not 0 <= rate <= 1:
        raise invalid(
            f"model {model.name}: sampling_rate {rate} is out of range; give a number from 0 to 1"
        )
    if rate > 0 and not collector.filename_prefix.startswith("/"):
        raise invalid(
            f"model {model.name}: filename_prefix {collector.filename_prefix!r} is no absolute "
            "path; give one such as /var/log/requests/shop, in a folder that is there"
        )


def logging_of(config: ModelServerConfig) -> Logging:
    """Returns how requests are logged; models without any are left out."""
    return {
        model.name: model.logging_config
        for model in config.model_config_list.config
        if model.logging_config.sampling_config.sampling_rate > 0
    }


def check_below(root: str, config: ModelServerConfig) -> None:
    """Refuses a configuration with logs outside of a directory; links are followed.

    Args:
        root: the directory; "": any place is allowed.
        config: checked already.

    Raises:
        RequestError: PERMISSION_DENIED; names the model, its prefix and the directory.
    """
    if not root:
        return
    for model, logging in logging_of(config).items():
        prefix = logging.log_collector_config.filename_prefix
        if not Path(prefix).resolve().is_relative_to(Path(root).resolve()):
            raise RequestError(
                Code.PERMISSION_DENIED,
                f"model {model}: filename_prefix {prefix!r} is not below --request_log_root {root}",
            )
