"""A Keras model with a ragged input, answered by a server as in training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import hotrow


def test_a_ragged_input_scores_over_rest_as_in_training(start_server: Any, tmp_path: Path) -> None:
    keys = keras.Input((None,), dtype="int64", ragged=True, name="history")
    layer = hotrow.DistributedEmbedding(hotrow.FeatureConfig("history", hotrow.TableConfig("t", 4)))
    model = keras.Model({"history": keys}, layer({"history": keys})["history"])
    model.compile("sgd", "mse")
    history = tf.ragged.constant([[181], [1, 2, 3], [], [5, 181]], dtype=tf.int64)
    batch = ({"history": history}, np.ones((4, 4)))
    model.fit(tf.data.Dataset.from_tensors(batch), verbose=0, shuffle=False)
    hotrow.export_model(model, tmp_path, "m")
    server = start_server("m", tmp_path / "m")
    server.wait_ready()
    columns = {
        "history": history.flat_values.numpy().tolist(),
        "history_row_splits": history.row_splits.numpy().tolist(),
    }
    status, text = server.rest_predict({"inputs": columns})
    assert status == 200, text
    expected = model({"history": history}).numpy()
    np.testing.assert_allclose(json.loads(text)["outputs"], expected, rtol=0, atol=1e-6)
    assert expected[0].any()
