"""The models to serve: TF Serving's ModelServerConfig, and the checks on it.

Codes and texts are TF Serving's (`server_core.cc`).
"""

from __future__ import annotations

import re
from pathlib import Path

from tensorflow_serving.config.model_server_config_pb2 import (
    TENSORFLOW,
    ModelConfig,
    ModelServerConfig,
)

from hotrow.serving.config.request_logging import check_logging
from hotrow.serving.wire.status import Code, RequestError, invalid

PLATFORM = "tensorflow"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def single_model(name: str, base_path: str) -> ModelServerConfig:
    """Returns the configuration of --model_name and --model_base_path."""
    config = ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=base_path, model_platform=PLATFORM)
    return config


def check_transition(old: ModelServerConfig, new: ModelServerConfig) -> None:
    """Refuses a configuration that cannot replace the old one.

    Raises:
        RequestError: FAILED_PRECONDITION when something else would replace a list of models,
            INVALID_ARGUMENT for an invalid list, UNIMPLEMENTED for a base path that is a URI,
            NOT_FOUND for an unknown log collector.
    """
    first = old.WhichOneof("config") is None
    if not first and new.WhichOneof("config") != "model_config_list":
        raise RequestError(
            Code.FAILED_PRECONDITION,
            "Cannot transition to requested config. It is only legal to transition from one "
            "ModelConfigList to another.",
        )
    if new.WhichOneof("config") == "custom_model_config":
        raise invalid("ModelServer does not yet support custom model config.")
    models = new.model_config_list.config
    names = [model.name for model in models]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid(f"Illegal to list model {name} multiple times in config list")
    for model in models:
        local_base_path(model)
        check_logging(model)
    _check_platforms(old, new)


def local_base_path(model: ModelConfig) -> Path:
    """Returns the directory of a model's versions.

    Raises:
        RequestError: INVALID_ARGUMENT when it is relative, UNIMPLEMENTED when it is not in this
            machine's file system.
    """
    given = model.base_path
    scheme = _SCHEME.match(given)
    if scheme is not None and scheme[1] != "file":
        raise RequestError(
            Code.UNIMPLEMENTED,
            f"model {model.name}: base path {given} is not on this machine; copy the model here "
            "and name its directory",
        )
    path = Path(given[scheme.end() :] if scheme else given)
    if not path.is_absolute():
        raise invalid(
            f"Expected model {model.name} to have an absolute path or URI; got base_path()={given}"
        )
    return path


def _check_platforms(old: ModelServerConfig, new: ModelServerConfig) -> None:
    before = {model.name: _platform(model) for model in old.model_config_list.config}
    for model in new.model_config_list.config:
        platform = _platform(model)
        if before.get(model.name, platform) != platform:
            raise invalid(
                f"Illegal to change a model's platform. For model {model.name} platform was "
                f"{before[model.name]} and new platform requested is {platform}"
            )
    for model in new.model_config_list.config:
        if _platform(model) != PLATFORM:
            raise invalid(f"Model {model.name} requests unsupported platform {_platform(model)}")


def _platform(model: ModelConfig) -> str:
    """Returns a model's platform, from either of the two fields that may hold it."""
    if not model.model_type:
        if not model.model_platform:
            raise invalid(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
                f"ModelServerConfig::model_platform, model name is {model.name}"
            )
        return str(model.model_platform)
    if model.model_platform:
        raise invalid(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            "ModelServerConfig::model_platform."
        )
    if model.model_type != TENSORFLOW:
        raise invalid(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    return PLATFORM
