"""Arrays in safetensors files, written as the library would."""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from hotrow.errors import DataLossError
from hotrow.trainer.checkpoint.array_file import read_arrays, write_arrays

ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8),
    "keys": np.array([-1, 2**63 - 1]),
    "nothing": np.empty((0, 3), np.float32),
    "scalar": np.array(2.5, np.float64),
    "flags": np.array([True, False]),
    "half": np.array([1.5, -2], np.float16),
    "brain": np.array([1.5, -2], ml_dtypes.bfloat16),
}


def test_the_library_reads_what_was_written_aligned_and_with_its_checksum(tmp_path):
    path = tmp_path / "a.safetensors"
    facts = write_arrays(path, ARRAYS)
    content = path.read_bytes()
    assert facts == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    assert int.from_bytes(content[:8], "little") % 8 == 0
    for arrays in (load_file(path), read_arrays(path)):
        assert arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(arrays[name], array)


def test_a_slice_that_is_not_contiguous_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not contiguous"):
        write_arrays(tmp_path / "a", {"x": np.zeros((4, 4))[:, :2]})


def test_a_file_is_never_written_over(tmp_path):
    write_arrays(tmp_path / "a", {"x": np.zeros(3)})
    with pytest.raises(FileExistsError):
        write_arrays(tmp_path / "a", {"x": np.ones(3)})
    assert not read_arrays(tmp_path / "a")["x"].any()


@pytest.mark.parametrize("content", [b"", b"x", b"\x08" + 7 * b"\0" + b"not json", 8 * b"\xff"])
def test_what_is_no_safetensors_file_is_data_loss(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataLossError, match="cannot be read"):
        read_arrays(tmp_path / "a")
