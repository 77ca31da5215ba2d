"""Files of TFRecords are read as TensorFlow reads them, whole, cut or damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf

from hotrow.serving.wire.status import RequestError
from hotrow.serving.wire.tf_records import read_records

RECORDS = [b"abc", b"", bytes(range(20))]
_REASON = re.compile(r"^(?:\{\{.*?\}\} )?(.*?)(?: \[Op:.*)?$")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of `RECORDS`, by TensorFlow."""
    path = tmp_path_factory.mktemp("records") / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in RECORDS:
            writer.write(record)
    return path.read_bytes()


def _by_us(path: Path) -> tuple[list[bytes], str]:
    """Returns the records up to the first that cannot be read, and why."""
    found: list[bytes] = []
    try:
        found.extend(read_records(path))
    except RequestError as err:
        return found, f"{err.code.name}: {err}"
    return found, ""


def _by_tensorflow(path: Path) -> tuple[list[bytes], str]:
    found: list[bytes] = []
    try:
        found.extend(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    except tf.errors.DataLossError as err:
        (reason,) = _REASON.fullmatch(err.message).groups()
        return found, f"DATA_LOSS: {reason}"
    return found, ""


def test_all_records_are_read(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "f").write_bytes(written)
    assert list(read_records(tmp_path / "f")) == RECORDS


def test_a_file_that_is_cut_anywhere_is_read_as_tensorflow_does(
    tmp_path: Path, written: bytes
) -> None:
    for size in range(len(written)):
        (tmp_path / "f").write_bytes(written[:size])
        assert _by_us(tmp_path / "f") == _by_tensorflow(tmp_path / "f"), size


def test_a_damaged_byte_is_found_as_tensorflow_finds_it(tmp_path: Path, written: bytes) -> None:
    for at in range(len(written)):
        (tmp_path / "f").write_bytes(written[:at] + bytes([written[at] ^ 0x10]) + written[at + 1 :])
        found, reason = _by_us(tmp_path / "f")
        assert (found, reason) == _by_tensorflow(tmp_path / "f"), at
        assert reason.startswith("DATA_LOSS: corrupted record at ")
