"""Checkpoints read without TensorFlow have the values that TensorFlow wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from hotrow.errors import DataLossError
from hotrow.serving.wire.tensor_bundle import floating_tensors


def test_floating_tensors_are_those_that_tensorflow_wrote(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        f"layer_{number:05}/{'long' * 20}": tf.constant(rng.normal(size=(number % 7, 3)), kind)
        for number, kind in enumerate(
            [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int64] * 1000
        )
    }
    tensors["scalar"] = tf.constant(2.5)
    prefix = tmp_path / "variables"
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tensors[name] for name in names],
    )
    found = dict(floating_tensors(prefix))
    assert sorted(found) == [name for name in names if tensors[name].dtype.is_floating]
    for name, values in found.items():
        assert values.tobytes() == tensors[name].numpy().tobytes(), name


@pytest.mark.parametrize("size", [0, 10, 60, -1])
def test_a_damaged_index_is_reported(size: int, tmp_path: Path) -> None:
    prefix = tmp_path / "variables"
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant([1.0])]
    )
    index = tmp_path / "variables.index"
    index.write_bytes(index.read_bytes()[:size])
    with pytest.raises(DataLossError, match=r"the checkpoint .* cannot be read"):
        list(floating_tensors(prefix))
