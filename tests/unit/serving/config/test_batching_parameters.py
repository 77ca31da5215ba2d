"""Files of batching parameters: what they say, defaults, and what is not legal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.serving.config.batching_parameters import default_parameters, read_parameters


def test_defaults_are_those_of_tensorflow_serving() -> None:
    parameters = default_parameters()
    batching = parameters.batching
    assert parameters.threads == os.cpu_count()
    assert (batching.max_batch_size, batching.batch_timeout_micros) == (1000, 0)
    assert batching.max_enqueued_batches == 10
    assert batching.thread_pool_name == "model_server_batch_threads"


def test_the_file_of_tensorflow_serving_is_read(shared: Path) -> None:
    path = shared / "data" / "tfserving_testdata" / "batching_config.txt"
    parameters = read_parameters(str(path))
    batching = parameters.batching
    assert parameters.threads == 8
    assert (batching.max_batch_size, batching.batch_timeout_micros) == (128, 0)
    assert batching.max_enqueued_batches == 1_000_000
    assert batching.thread_pool_name == "batch_threads"
    assert batching.max_execution_batch_size == 128


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_batch_size: 1 nonsense", "Invalid protobuf file: '"),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; "
            "expected 8",
        ),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 9 allowed_batch_sizes: 8",
            "monotonically increasing",
        ),
        ("num_batch_threads { value: 0 }", "num_batch_threads is 0; give a number from 1 on"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros is -1"),
        (
            "max_batch_size { value: 8 } enable_large_batch_splitting { value: true } "
            "max_execution_batch_size { value: 9 }",
            "max_batch_size must be greater than or equal to max_execution_batch_size",
        ),
    ],
    ids=["no text proto", "no last size", "not sorted", "no thread", "negative", "no split"],
)
def test_what_is_not_legal_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "batching.txt"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError) as refused:
        read_parameters(str(path))
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        read_parameters(str(tmp_path / "nowhere"))


def test_zero_enqueued_batches_count_as_one(tmp_path: Path) -> None:
    path = tmp_path / "batching.txt"
    path.write_text("max_enqueued_batches { value: 0 }")
    assert read_parameters(str(path)).batching.max_enqueued_batches == 1
