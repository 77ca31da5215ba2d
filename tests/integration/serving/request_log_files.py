"""Files of logged requests, and configurations that ask for them."""

from __future__ import annotations

import time
from pathlib import Path

import tensorflow as tf
from integration.serving.model_configs import WAIT_SECONDS
from tensorflow_serving.apis import prediction_log_pb2


def logging(prefix: Path | str, rate: float = 1.0, kind: str = "file") -> str:
    """Returns the text of a model's logging_config."""
    return (
        f'logging_config {{ log_collector_config {{ type: "{kind}" filename_prefix: "{prefix}" }} '
        f"sampling_config {{ sampling_rate: {rate} }} }}"
    )


def files(prefix: Path) -> list[Path]:
    """Returns the files of a prefix, the oldest first."""
    return sorted(prefix.parent.glob(f"{prefix.name}-*.tfrecord"))


def records(*paths: Path) -> list[prediction_log_pb2.PredictionLog]:
    """Returns the records of files, checksums and all."""
    names = [str(path) for path in paths]
    read = tf.data.TFRecordDataset(names).as_numpy_iterator() if names else ()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in read]


def wait_for_records(prefix: Path, count: int) -> list[prediction_log_pb2.PredictionLog]:
    """Returns the records of a prefix when there are so many."""
    end = time.monotonic() + WAIT_SECONDS
    while len(found := records(*files(prefix))) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records"
        time.sleep(0.05)
    assert len(found) == count
    return found
