"""BatchingParameters: read, checked, and with TensorFlow Serving's defaults filled in."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError
from hotrow.protos import batching_parameters_pb2, control_pb2
from hotrow.text_proto import read_text_proto

_MAX_BATCH_SIZE = 1000
_MAX_ENQUEUED_BATCHES = 10
_POOL = "batch_threads"
_POOL_WITHOUT_FILE = "model_server_batch_threads"


@dataclass(frozen=True)
class Parameters:
    """How batches are made, and by how many threads."""

    threads: int
    batching: control_pb2.Batching


def default_parameters() -> Parameters:
    """Returns the parameters that apply without a file."""
    given = batching_parameters_pb2.BatchingParameters()
    given.thread_pool_name.value = _POOL_WITHOUT_FILE
    return as_parameters(given, "")


def read_parameters(path: str) -> Parameters:
    """Returns the parameters in a file.

    Raises:
        NotFoundError: the file cannot be read.
        InvalidArgumentError: it is no BatchingParameters, or a value is not legal.
    """
    given = read_text_proto(path, batching_parameters_pb2.BatchingParameters())
    return as_parameters(given, f"{path}: ")


def as_parameters(given: batching_parameters_pb2.BatchingParameters, where: str) -> Parameters:
    """Returns a message's parameters, with defaults; errors begin with `where`.

    Raises:
        InvalidArgumentError: a value is not legal.
    """

    def value(name: str, default: int, least: int) -> int:
        number = int(getattr(given, name).value) if given.HasField(name) else default
        if number < least:
            raise InvalidArgumentError(f"{where}{name} is {number}; give a number from {least} on")
        return number

    batching = control_pb2.Batching(
        max_batch_size=value("max_batch_size", _MAX_BATCH_SIZE, 1),
        batch_timeout_micros=value("batch_timeout_micros", 0, 0),
        # TF Serving takes 0 as 1.
        max_enqueued_batches=max(1, value("max_enqueued_batches", _MAX_ENQUEUED_BATCHES, 0)),
        allowed_batch_sizes=given.allowed_batch_sizes,
        pad_variable_length_inputs=given.pad_variable_length_inputs,
        split_large_batches=given.enable_large_batch_splitting.value,
        thread_pool_name=given.thread_pool_name.value or _POOL,
    )
    batching.max_execution_batch_size = value(
        "max_execution_batch_size", batching.max_batch_size, 1
    )
    _check_sizes(batching, where)
    return Parameters(value("num_batch_threads", os.cpu_count() or 1, 1), batching)


def _check_sizes(batching: control_pb2.Batching, where: str) -> None:
    allowed = list(batching.allowed_batch_sizes)
    if any(after <= before for before, after in itertools.pairwise([0, *allowed])):
        raise InvalidArgumentError(
            f"{where}allowed_batch_sizes entries must be positive and monotonically increasing; "
            f"were {allowed}"
        )
    if allowed and allowed[-1] != batching.max_batch_size:
        raise InvalidArgumentError(
            f"{where}Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
            f"{allowed[-1]}; expected {batching.max_batch_size}"
        )
    if batching.split_large_batches and batching.max_execution_batch_size > batching.max_batch_size:
        raise InvalidArgumentError(
            f"{where}When enable_large_batch_splitting is true, max_batch_size must be greater "
            f"than or equal to max_execution_batch_size; {batching.max_batch_size} is less than "
            f"{batching.max_execution_batch_size}"
        )
