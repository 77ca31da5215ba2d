"""How SavedModels are loaded and run: set by the flags, or by --platform_config_file instead.

The file is TensorFlow Serving's PlatformConfigMap with a SavedModelBundleSourceAdapterConfig for
the platform `tensorflow`. It replaces the flags about sessions, batches and warm-up.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from tensorflow_serving.config.platform_config_pb2 import PlatformConfigMap

from hotrow.errors import InvalidArgumentError, UnimplementedError
from hotrow.protos import platform_config_pb2
from hotrow.serving.config.batching_parameters import (
    Parameters,
    as_parameters,
    default_parameters,
    read_parameters,
)
from hotrow.serving.config.model_config import PLATFORM
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.session_config import SessionOptions, session_config, set_mixed_precision
from hotrow.text_proto import read_text_proto

_LOG = logging.getLogger(__name__)

_ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"
_DEFAULTS = ServeOptions(model_base_path="-")
# Flags that the file replaces.
_REPLACED = (
    "enable_batching",
    "batching_parameters_file",
    "enable_per_model_batching_parameters",
    "enable_model_warmup",
    "num_request_iterations_for_warmup",
    "saved_model_tags",
    "tensorflow_session_parallelism",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
    "tensorflow_session_config_file",
    "per_process_gpu_memory_fraction",
    "mixed_precision",
)
# Fields that change a model's answers, so the server cannot ignore them.
_UNBUILT = ("session_target", "experimental_fixed_input_tensors")
_EFFECTIVE = (
    "session_config",
    "batching_parameters",
    "saved_model_tags",
    "enable_model_warmup",
    "model_warmup_options",
    "enable_per_model_batching_params",
    "mixed_precision",
    # Both values are accepted: the server never keeps whole graphs.
    "remove_unused_fields_from_bundle_metagraph",
)


@dataclass(frozen=True)
class WarmUpOptions:
    """Whether versions warm up, and how often each request of the file runs."""

    enabled: bool = True
    runs: int = 1


@dataclass(frozen=True)
class Platform:
    """How SavedModels are loaded and run.

    Attributes:
        session: tags of the graph and configuration of each session.
        batching: reads the parameters of batches; None: requests do not run together.
        batching_changes: whether the parameters that it reads may change.
        batching_by_version: whether a version's own file sets its parameters.
        warming: which requests a version answers before it serves.
    """

    session: SessionOptions
    batching: Callable[[], Parameters] | None
    batching_changes: bool
    batching_by_version: bool
    warming: WarmUpOptions


def read_platform(options: ServeOptions) -> Platform:
    """Returns the settings of the file if there is one, else those of the flags.

    Args:
        options: of the server.

    Raises:
        HotrowError: a file cannot be read, or contains an illegal value.
    """
    if options.platform_config_file:
        return _of_file(options)
    file = options.batching_parameters_file
    read = functools.partial(read_parameters, file) if file else default_parameters
    return Platform(
        SessionOptions(options.saved_model_tags, session_config(options)),
        read if options.enable_batching else None,
        bool(file),
        options.enable_per_model_batching_parameters,
        WarmUpOptions(
            options.enable_model_warmup, max(1, options.num_request_iterations_for_warmup)
        ),
    )


def _of_file(options: ServeOptions) -> Platform:
    path = options.platform_config_file
    for flag in _REPLACED:
        if getattr(options, flag) != getattr(_DEFAULTS, flag):
            _LOG.warning(f"--{flag} has no effect: --platform_config_file takes its place")
    given = _read(path)
    for field in _UNBUILT:
        if getattr(given, field):
            raise UnimplementedError(f"{path}: {field} is not built; leave it out")
    _name_fields_without_effect(given, path)
    if given.mixed_precision:
        set_mixed_precision(given.session_config, given.mixed_precision)
    batching = None
    if given.HasField("batching_parameters"):
        batching = as_parameters(given.batching_parameters, f"{path}: ")
    warming = given.model_warmup_options.num_request_iterations.value
    return Platform(
        SessionOptions(tuple(given.saved_model_tags) or ("serve",), given.session_config),
        None if batching is None else lambda: batching,
        False,
        given.enable_per_model_batching_params,
        WarmUpOptions(given.enable_model_warmup, max(1, warming)),
    )


class _Adapters:
    """Finds our message under the name that TensorFlow Serving has for it."""

    def FindMessageTypeByName(self, name: str) -> Descriptor:  # noqa: N802 (protobuf's)
        if name != _ADAPTER:
            raise KeyError(name)
        return platform_config_pb2.SavedModelBundleSourceAdapterConfig.DESCRIPTOR


def _read(path: str) -> platform_config_pb2.SessionBundleConfig:
    platforms = read_text_proto(
        path, PlatformConfigMap(), types=cast(DescriptorPool, _Adapters())
    ).platform_configs
    for name in sorted(platforms.keys() - {PLATFORM}):
        _LOG.warning(
            f"{path}: platform {name} has no effect: models are served with {PLATFORM!r} alone"
        )
    if PLATFORM not in platforms:
        raise InvalidArgumentError(f"{path}: it has no platform {PLATFORM!r}; add one")
    packed = platforms[PLATFORM].source_adapter_config
    adapter = platform_config_pb2.SavedModelBundleSourceAdapterConfig()
    # A message in text form was packed under our name.
    if packed.TypeName() not in (_ADAPTER, adapter.DESCRIPTOR.full_name):
        raise InvalidArgumentError(
            f"{path}: source_adapter_config of {PLATFORM!r} is {packed.TypeName() or 'missing'}; "
            f"give a {_ADAPTER}"
        )
    try:
        adapter.ParseFromString(packed.value)
    except DecodeError as err:
        raise InvalidArgumentError(f"{path}: the value of {_ADAPTER} is damaged: {err}") from err
    return adapter.legacy_config


def _name_fields_without_effect(given: platform_config_pb2.SessionBundleConfig, path: str) -> None:
    names = [field.name for field, _ in given.ListFields() if field.name not in _EFFECTIVE]
    names += [
        f"model_warmup_options.{field.name}"
        for field, _ in given.model_warmup_options.ListFields()
        if field.name != "num_request_iterations"
    ]
    names += [f"field {field.field_number}" for field in UnknownFieldSet(given)]
    for name in names:
        _LOG.warning(f"{path}: {name} has no effect")
