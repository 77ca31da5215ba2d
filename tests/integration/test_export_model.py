"""`hotrow.export_model`: Keras models of users, served from their rows in another process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.errors import InvalidArgumentError, UnimplementedError

LOAD = """\
import json, sys
import tensorflow as tf
if sys.argv[2] == "hotrow":
    from hotrow.ops import library
    library.load()
loaded = tf.saved_model.load(sys.argv[1])
inputs = {k: tf.constant(v, d) for k, (v, d) in json.loads(sys.argv[3]).items()}
outputs = loaded.signatures["serving_default"](**inputs)
assert (sys.argv[2] == "hotrow") == ("hotrow" in sys.modules)
print(json.dumps({k: v.numpy().tolist() for k, v in outputs.items()}))
"""


def served(directory, standalone, **inputs):
    """Outputs of the version in a process of its own, without Hotrow when it is standalone."""
    given = {name: (value.tolist(), value.dtype.name) for name, value in inputs.items()}
    kind = "plain" if standalone else "hotrow"
    answer = subprocess.run(
        [sys.executable, "-c", LOAD, str(directory), kind, json.dumps(given)],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def embedding(name, combiner="mean"):
    table = hotrow.TableConfig(f"{name}-table", 4, combiner=combiner)
    return hotrow.DistributedEmbedding([hotrow.FeatureConfig(name, table)])


def functional():
    inputs = {
        "user": keras.Input((), dtype="int64", name="user"),
        "items": keras.Input((3,), dtype="int64", name="items"),
        "age": keras.Input((1,), name="age"),
    }
    user = embedding("user")({"user": inputs["user"]})["user"]
    items = embedding("items")({"items": inputs["items"]})["items"]
    hidden = keras.layers.Concatenate()([user, items, inputs["age"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    data = {
        "user": np.array([1, 2, -3, 2**62]),
        "items": np.array([[1, 2, 3], [4, 4, 4], [1, 1, 9], [0, -1, -2]]),
        "age": np.array([[1.0], [2.0], [3.0], [4.0]], np.float32),
    }
    model.compile("adam", "mse")
    model.fit(data, np.ones(4), epochs=3, verbose=0)
    return model, data


@pytest.mark.parametrize(
    "standalone",
    [
        pytest.param(False, id="store"),
        pytest.param(True, id="standalone", marks=pytest.mark.slow),
    ],
)
def test_a_functional_model_with_two_layers_scores_alike_in_another_process(tmp_path, standalone):
    model, data = functional()
    directory = hotrow.export_model(model, tmp_path, "m", standalone=standalone)
    assert directory == tmp_path / "m" / "1"
    outputs = served(directory, standalone, **data)
    np.testing.assert_allclose(
        outputs["outputs"], model.predict(data, verbose=0), rtol=0, atol=1e-6
    )


def test_a_subclassed_model_needs_its_inputs(tmp_path):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = embedding("f")

        def call(self, keys, training=False):
            return {"rows": self.embedding({"f": keys}, training=training)["f"]}

    model = Model()
    keys = np.array([5, 6], np.int64)
    expected = model(keys, training=True)["rows"].numpy()
    with pytest.raises(InvalidArgumentError, match="not a functional model; give inputs="):
        hotrow.export_model(model, tmp_path, "m")
    spec = tf.TensorSpec([None], tf.int64)
    directory = hotrow.export_model(model, tmp_path, "m", inputs=spec)
    outputs = served(directory, False, inputs=keys)
    assert np.array(outputs["rows"], np.float32).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "standalone"),
    [
        pytest.param("bfloat16", False, id="bfloat16-store"),
        pytest.param("bfloat16", True, id="bfloat16-standalone", marks=pytest.mark.slow),
        pytest.param("float16", False, id="float16-store", marks=pytest.mark.slow),
        pytest.param("float16", True, id="float16-standalone", marks=pytest.mark.slow),
    ],
)
def test_rows_of_16_bits_are_served_as_their_float32_values(tmp_path, dtype, standalone):
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 5)
    table = hotrow.TableConfig(
        "t",
        4,
        combiner="sum",
        dtype=dtype,
        default_value=0.1,  # 16 bits do not hold it: a missing key reads what training reads
        optimizer=hotrow.Adam(schedule),
        admission=hotrow.Admission(2),
        expiry=hotrow.Expiry(100),
    )
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)], global_clipnorm=1.0)
    keys = keras.Input((), dtype="int64", name="f")
    model = keras.Model({"f": keys}, {"rows": layer({"f": keys})["f"]})
    model.compile("sgd", "mse")
    rows = {"f": np.array([1, 2, 2, 3, 3, 3])}
    model.fit(rows, {"rows": np.ones((6, 4))}, epochs=2, verbose=0)
    asked = np.array([1, 2, 3, 99])
    expected = model.predict({"f": asked}, verbose=0)["rows"]
    directory = hotrow.export_model(model, tmp_path, "m", standalone=standalone)
    outputs = served(directory, standalone, f=asked)
    assert np.array(outputs["rows"], np.float32).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "trained",
    [
        pytest.param(True, id="known", marks=pytest.mark.slow),
        pytest.param(False, id="unknown"),
    ],
)
def test_the_largest_key_is_a_key_like_others_in_variables(tmp_path, trained):
    largest = 2**63 - 1
    table = hotrow.TableConfig("t", 4, combiner="sum", default_value=0.5)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)])
    keys = keras.Input((), dtype="int64", name="f")
    model = keras.Model({"f": keys}, {"rows": layer({"f": keys})["f"]})
    rows = layer.tables["t"].lookup(np.array([-(2**63), 5, largest if trained else 6]), insert=True)
    asked = np.array([-(2**63), 5, 7, largest])
    expected = np.full((4, 4), 0.5, np.float32)
    expected[:2] = rows[:2]
    if trained:
        expected[3] = rows[2]
    directory = hotrow.export_model(model, tmp_path, "m", standalone=True)
    outputs = served(directory, True, f=asked)
    assert np.array(outputs["rows"], np.float32).tobytes() == expected.tobytes()


def test_two_layers_with_one_table_name_are_refused(tmp_path):
    keys = keras.Input((), dtype="int64")
    model = keras.Model(keys, embedding("f")({"f": keys})["f"] + embedding("f")({"f": keys})["f"])
    with pytest.raises(InvalidArgumentError, match="two embedding layers have a table or feature"):
        hotrow.export_model(model, tmp_path, "m")
    assert not list((tmp_path).rglob("saved_model.pb"))


def test_a_version_written_anew_at_the_same_path_is_read_anew(tmp_path):
    keys = keras.Input((), dtype="int64")
    layer = embedding("f")
    model = keras.Model(keys, layer({"f": keys})["f"])
    asked = np.array([7], np.int64)
    answers = []
    for value in (1.0, 2.0):
        table, one = layer.tables["f-table"], np.ones(1, np.uint32)
        line = np.full((1, table.line_bytes // 4), value, np.float32)
        table.import_rows(asked, line.view(np.uint8), one, one)
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        loaded = tf.saved_model.load(str(hotrow.export_model(model, tmp_path, "m")))
        rows = loaded.signatures["serving_default"](inputs=tf.constant(asked))["outputs"]
        answers.append(float(rows[0, 0]))
    assert answers == [1.0, 2.0]


def ragged_model(subclassed):
    layer = embedding("history")
    dense = keras.layers.Dense(1)
    if not subclassed:
        keys = keras.Input((None,), dtype="int64", ragged=True, name="history")
        rows = layer({"history": keys})["history"]
        return keras.Model({"history": keys}, dense(rows))

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = layer, dense

        def call(self, inputs, training=False):
            return self.dense(self.embedding(inputs, training=training)["history"])

    return Model()


@pytest.mark.parametrize(
    ("subclassed", "standalone"),
    [
        pytest.param(False, False, id="functional-store"),
        pytest.param(False, True, id="functional-standalone", marks=pytest.mark.slow),
        pytest.param(True, False, id="subclassed-store", marks=pytest.mark.slow),
        pytest.param(True, True, id="subclassed-standalone"),
    ],
)
def test_a_ragged_input_is_served_by_values_and_row_splits(tmp_path, subclassed, standalone):
    model = ragged_model(subclassed)
    history = tf.ragged.constant([[181], [1, 2, 3], [], [5, 181]], dtype=tf.int64)
    model.compile("adam", "mse")
    batch = ({"history": history}, np.ones((4, 1)))
    model.fit(tf.data.Dataset.from_tensors(batch), epochs=2, verbose=0, shuffle=False)
    expected = model({"history": history}).numpy()
    spec = {"history": tf.RaggedTensorSpec([None, None], tf.int64)} if subclassed else None
    directory = hotrow.export_model(model, tmp_path, "m", inputs=spec, standalone=standalone)
    outputs = served(
        directory,
        standalone,
        history=history.flat_values.numpy(),
        history_row_splits=history.row_splits.numpy(),
    )
    np.testing.assert_allclose(outputs["outputs"], expected, rtol=0, atol=1e-6)


def test_string_keys_are_served_as_they_are_trained(tmp_path):
    names = keras.Input((3,), dtype="string", name="names")
    table = hotrow.TableConfig("t", 4)
    layer = hotrow.DistributedEmbedding(hotrow.FeatureConfig("names", table, mask_value=""))
    model = keras.Model({"names": names}, layer({"names": names})["names"])
    model.compile("sgd", "mse")
    asked = tf.constant([["a", "red shoes", ""], ["new", "", ""]])
    model.fit({"names": asked[:1]}, np.ones((1, 4)), verbose=0)
    assert len(layer.tables["t"]) == 2
    expected = model({"names": asked}).numpy()
    loaded = tf.saved_model.load(str(hotrow.export_model(model, tmp_path, "m")))
    outputs = loaded.signatures["serving_default"](names=asked)["outputs"]
    assert outputs.numpy().tobytes() == expected.tobytes()
    assert expected[0].any()
    assert not expected[1].any()


def test_inputs_that_no_signature_takes_are_refused(tmp_path):
    layer = embedding("f")
    sparse = keras.Input((None,), dtype="int64", sparse=True, name="f")
    model = keras.Model({"f": sparse}, layer({"f": sparse})["f"])
    with pytest.raises(UnimplementedError, match=r"input 'f' is sparse, .*make it ragged"):
        hotrow.export_model(model, tmp_path, "m")
    specs = {
        "f": tf.RaggedTensorSpec([None, None], tf.int64),
        "f_row_splits": tf.TensorSpec([None], tf.int64),
    }
    with pytest.raises(InvalidArgumentError, match="'f_row_splits' has the name of the row splits"):
        hotrow.export_model(model, tmp_path, "m", inputs=specs)
    assert not list(tmp_path.rglob("saved_model.pb"))
