"""The configuration of TensorFlow's sessions, from the flags."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from hotrow.serving.config.options import ServeOptions
from hotrow.text_proto import read_text_proto

_LOG = logging.getLogger(__name__)

_BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class SessionOptions:
    """How a session is made: the tags of its graph and its configuration."""

    tags: tuple[str, ...]
    config: config_pb2.ConfigProto


def session_config(options: ServeOptions) -> config_pb2.ConfigProto:
    """Returns the configuration of every session: the file's, with the flags on top.

    Args:
        options: of the server.

    Raises:
        HotrowError: the file cannot be read or is no ConfigProto.
    """
    config = config_pb2.ConfigProto()
    if options.tensorflow_session_config_file:
        read_text_proto(options.tensorflow_session_config_file, config)
    intra = options.tensorflow_intra_op_parallelism
    inter = options.tensorflow_inter_op_parallelism
    if not intra and not inter:
        intra = inter = options.tensorflow_session_parallelism
    if intra:
        config.intra_op_parallelism_threads = intra
    if inter:
        config.inter_op_parallelism_threads = inter
    if options.per_process_gpu_memory_fraction:
        gpu = config.gpu_options
        gpu.per_process_gpu_memory_fraction = options.per_process_gpu_memory_fraction
    elif options.rows.gpu is not None:
        # Else TensorFlow would take all of the GPU's memory when the first session begins, and
        # leave none for the rows of later versions.
        config.gpu_options.allow_growth = True
    if options.mixed_precision:
        set_mixed_precision(config, options.mixed_precision)
    return config


def set_mixed_precision(config: config_pb2.ConfigProto, kind: str) -> None:
    """Lets sessions compute in this type where that is safe; logs an error for another type."""
    if kind == _BFLOAT16:
        rewrites = config.graph_options.rewrite_options
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    else:
        _LOG.error(f"{kind} auto mixed precision is not supported. Valid option: {_BFLOAT16}")
