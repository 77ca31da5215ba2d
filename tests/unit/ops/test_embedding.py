"""The Keras layer in all the ways it is used, and what it refuses."""

from __future__ import annotations

import dataclasses
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer, rows

import hotrow
from hotrow import _native
from hotrow.errors import InvalidArgumentError


def test_fit_lowers_the_loss_and_evaluate_and_predict_insert_nothing():
    model = Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.compile("adam", "mse")
    assert model.predict(KEYS, verbose=0).ravel().tolist() == [0, 0, 0, 0]
    labels = np.array([1.0, 2.0, 3.0, 1.0])
    before = model.evaluate(KEYS, labels, verbose=0)
    assert model.embedding.tables["t"].size == 0
    history = model.fit(KEYS, labels, epochs=20, verbose=0)
    assert history.history["loss"][-1] < 0.1 * before
    digest = model.embedding.tables["t"].digest()
    model.evaluate(np.array([1, 99]), np.ones(2), verbose=0)
    model.predict(np.array([1, 99]), verbose=0)
    assert model.embedding.tables["t"].digest() == digest
    assert model.embedding.tables["t"].size == 3


@pytest.mark.parametrize("in_function", [True, False], ids=["tf.function", "eager"])
@pytest.mark.parametrize("update", ["step", "backward"])
def test_a_custom_loop_updates_rows_by_the_gradient(in_function, update):
    embedding = layer(update)
    optimizer = keras.optimizers.SGD(0.1)

    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": keys}, training=True)["f"])
        variables = embedding.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step = tf.function(step) if in_function else step
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    for _ in range(3):
        step(tf.constant(KEYS))
    # Key 1 is there twice: its gradient is 2 a step, with SGD(1.0).
    np.testing.assert_allclose(rows(embedding), start - 3 * np.array([[2], [1], [1]]), atol=1e-5)
    assert embedding.tables["t"].step == 3


def test_an_eager_tape_over_a_forward_function_updates():
    embedding = layer()
    forward = tf.function(lambda k: tf.reduce_sum(embedding({"f": k}, training=True)["f"]))
    start = layer().tables["t"].lookup(np.array([2]), insert=True)
    with tf.GradientTape() as tape:
        loss = forward(tf.constant(KEYS))
    gradients = tape.gradient(loss, embedding.trainable_variables)
    keras.optimizers.SGD().apply_gradients(
        zip(gradients, embedding.trainable_variables, strict=True)
    )
    np.testing.assert_allclose(rows(embedding, [2]), start - 1, atol=1e-6)


def test_a_functional_model_with_dense_inputs_trains():
    embedding = layer(features=("f", "g"))
    inputs = {
        "f": keras.Input((), dtype="int64", name="f"),
        "g": keras.Input((2,), dtype="int64", name="g"),
    }
    outputs = embedding(inputs)
    assert outputs["g"].shape == (None, 4)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs["f"] + outputs["g"]))
    model.compile("sgd", "mse")
    data = {"f": KEYS, "g": np.stack([KEYS, KEYS + 1], 1)}
    model.fit(data, np.ones(4), epochs=2, verbose=0)
    assert embedding.tables["t"].size == 4
    assert embedding.tables["t"].step == 2


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_several_steps_an_execution_commit_each_step(steps_per_execution):
    model = Model(layer())
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    model.fit(np.tile(KEYS, 6), np.ones(24), batch_size=4, epochs=1, verbose=0)
    assert model.embedding.tables["t"].step == 6


def test_shapes_of_every_kind_of_input_without_combiner():
    table = hotrow.TableConfig("t", 4, combiner=None)
    embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)])
    assert embedding({"f": KEYS})["f"].shape == (4, 4)
    assert embedding({"f": KEYS.reshape(2, 2)})["f"].shape == (2, 2, 4)
    ragged = embedding({"f": tf.ragged.constant([[1, 2], []], dtype=tf.int64)})["f"]
    assert isinstance(ragged, tf.RaggedTensor)
    assert ragged.row_splits.numpy().tolist() == [0, 2, 2]
    with pytest.raises(InvalidArgumentError, match="sparse input needs a combiner"):
        embedding({"f": tf.sparse.from_dense([[1, 0]])})


def test_an_empty_batch_is_legal():
    embedding = layer()
    assert embedding({"f": np.zeros(0, np.int64)}, training=True)["f"].shape == (0, 4)


def test_rows_take_the_compute_dtype_and_stay_float32_in_the_table():
    embedding = layer(dtype="mixed_bfloat16")
    assert embedding({"f": KEYS}, training=True)["f"].dtype == tf.bfloat16
    assert rows(embedding).dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param({}, "inputs lacks f", id="missing feature"),
        pytest.param(
            {"f": KEYS, "ff": KEYS}, "unknown feature 'ff' .did you mean 'f'", id="unknown"
        ),
        pytest.param(KEYS, "must be a dictionary by feature", id="no dictionary"),
        pytest.param({"f": np.ones(2, bool)}, "keys of type bool", id="booleans"),
        pytest.param({"f": np.ones((1, 1, 1), np.int64)}, "must be .B. or .B, k.", id="rank 3"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(inputs, message):
    with pytest.raises(InvalidArgumentError, match=message):
        layer()(inputs)


@pytest.mark.parametrize("value", [0.5, 2.0**25, float("nan")])
def test_floats_are_keys_only_where_they_are_exact_integers(value):
    embedding = layer()
    embedding({"f": np.array([3.0, -2.0], np.float32)}, training=True)
    np.testing.assert_array_equal(
        rows(embedding, [3]), layer().tables["t"].lookup(np.array([3]), insert=True)
    )
    bad = np.array([1.0, value], np.float32)
    line = f"feature 'f': keys of type float32 that are not exact .* the first is {value}"
    with pytest.raises(InvalidArgumentError, match=line):
        embedding({"f": bad}, training=True)
    in_graph = tf.function(lambda keys: embedding({"f": keys}, training=True)["f"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"not exact integers below 2.24"):
        in_graph(tf.constant(bad))


@pytest.mark.parametrize("kind", ["dense", "ragged", "eager numpy", "tf.function"])
def test_strings_are_hashed_with_the_name_of_their_table(kind):
    embedding = layer()
    values = tf.constant([["red shoes", "b"], ["b", "\u00e9"]])
    if kind == "ragged":
        values = tf.RaggedTensor.from_tensor(values, ragged_rank=1)
    elif kind == "eager numpy":
        values = np.array([["red shoes", "b"], ["b", "\u00e9"]])
    call = tf.function(embedding) if kind == "tf.function" else embedding
    found = call({"f": values}, training=True)["f"]
    table = embedding.tables["t"]
    names = ["red shoes", "b", "\u00e9"]
    keys = _native.fingerprint64([name.encode() for name in names], b"t\x1f")
    assert len(table) == 3
    assert table.contains(keys).all()
    shoes, b, e = table.lookup(keys)
    np.testing.assert_allclose(found, [shoes + b, b + e], rtol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["dense", "ragged", "weighted", "strings"])
def test_masked_keys_read_nothing_and_count_for_nothing(kind, combiner):
    table = hotrow.TableConfig("t", 4, optimizer=hotrow.Adagrad(0.5), combiner=combiner)
    mask = "0" if kind == "strings" else 0
    masked = hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", table, mask_value=mask), seed=3)
    plain = hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", table), seed=3)
    padded = tf.constant([[181, 0, 0], [0, 7, 181], [0, 0, 0]], tf.int64)
    short = tf.ragged.constant([[181], [7, 181], []], dtype=tf.int64)
    weights = [None, None]
    if kind == "ragged":
        padded = tf.RaggedTensor.from_tensor(padded)
    if kind == "strings":
        padded = tf.strings.as_string(padded)
        short = short.with_flat_values(tf.strings.as_string(short.flat_values))
    if kind == "weighted":
        weights = [
            {"f": tf.constant([[2.0, 9.0, 9.0], [9.0, 3.0, 4.0], [9.0, 9.0, 9.0]])},
            {"f": tf.ragged.constant([[2.0], [3.0, 4.0], []], ragged_rank=1)},
        ]
    pooled = []
    for embedding, keys, given in zip([masked, plain], [padded, short], weights, strict=True):
        for _ in range(2):
            with tf.GradientTape() as tape:
                rows_of = embedding({"f": keys}, given, training=True)["f"]
                loss = tf.reduce_sum(rows_of * [1.0, 2.0, 3.0, 4.0])
            variables = embedding.trainable_variables
            gradients = tape.gradient(loss, variables)
            keras.optimizers.SGD().apply_gradients(zip(gradients, variables, strict=True))
        pooled.append(rows_of.numpy())
    assert pooled[0].tobytes() == pooled[1].tobytes()
    assert masked.tables["t"].size == 2
    # Weights, optimizer state, clocks and counts.
    assert masked.tables["t"].digest() == plain.tables["t"].digest()


def test_a_mask_of_another_kind_than_the_keys_is_refused():
    table = hotrow.TableConfig("t", 4)
    embedding = hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", table, mask_value=""))
    with pytest.raises(InvalidArgumentError, match=r"mask_value is '' and keys are of type int64"):
        embedding({"f": KEYS})
    for mask, combiner in ((1.5, "sum"), (2**63, "sum"), (0, None)):
        with pytest.raises(InvalidArgumentError, match=r"mask_value is .*; must be"):
            hotrow.FeatureConfig("f", table, combiner, mask_value=mask)


def test_the_mask_survives_the_configuration_of_the_layer():
    table = hotrow.TableConfig("t", 4)
    embedding = hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", table, mask_value=-1))
    again = hotrow.DistributedEmbedding.from_config(embedding.get_config())
    assert again.layout == embedding.layout


def test_the_summary_counts_the_weights_of_rows():
    embedding = layer()
    embedding({"f": KEYS}, training=True)
    assert embedding.count_params() == 3 * 4


def test_configurations_that_cannot_be_are_refused():
    with pytest.raises(InvalidArgumentError, match="embedding_dim is 0; must be 1 or more"):
        hotrow.TableConfig("t", 0)
    with pytest.raises(InvalidArgumentError, match="did you mean 'mean'"):
        hotrow.TableConfig("t", 1, combiner="maen")
    with pytest.raises(InvalidArgumentError, match="optimizer is 'adam'; must be one of"):
        hotrow.TableConfig("t", 1, optimizer="adam")
    with pytest.raises(InvalidArgumentError, match=r"no argument 'dim' .did you mean 'embedding_d"):
        hotrow.TableConfig("t", dim=4)
    with pytest.raises(
        InvalidArgumentError, match=r"no argument 'combinr' .did you mean 'combiner'"
    ):
        hotrow.FeatureConfig("f", hotrow.TableConfig("t", 4), combinr="sum")
    with pytest.raises(InvalidArgumentError, match="feature 'f': table is 't'; must be a"):
        hotrow.FeatureConfig("f", "t")
    with pytest.raises(InvalidArgumentError, match="feature_configs is a TableConfig; must be a"):
        hotrow.DistributedEmbedding(hotrow.TableConfig("t", 4))
    with pytest.raises(InvalidArgumentError, match="feature_configs has a str; must be a"):
        hotrow.DistributedEmbedding(["f"])
    with pytest.raises(InvalidArgumentError, match="at least one"):
        hotrow.DistributedEmbedding([])
    with pytest.raises(InvalidArgumentError, match="two configurations"):
        hotrow.DistributedEmbedding(
            [
                hotrow.FeatureConfig("a", hotrow.TableConfig("t", 1)),
                hotrow.FeatureConfig("b", hotrow.TableConfig("t", 2)),
            ]
        )
    with pytest.raises(InvalidArgumentError, match="given twice"):
        layer(features=("f", "f"))


def test_a_vocabulary_bound_reaches_the_user_of_the_layer():
    table = hotrow.TableConfig("t", 4, vocabulary_size=10)
    embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="key 10"):
        embedding({"f": np.array([10])}, training=True)


def test_a_key_out_of_range_does_not_pass_for_the_end_of_the_data():
    table = hotrow.TableConfig("t", 4, vocabulary_size=10)
    model = Model(hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)]))
    model.compile("sgd", "mse")
    keys = np.array([1, 2, 3, 11])
    for call in (
        lambda: model.fit(keys, np.ones(4), batch_size=1, verbose=0),
        lambda: model.evaluate(keys, np.ones(4), batch_size=1, verbose=0),
        lambda: model.predict(keys, batch_size=1, verbose=0),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="key 11"):
            call()


def test_weights_must_lie_like_the_keys():
    ragged = tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)
    other = tf.ragged.constant([[1.0], [1.0, 1.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="other row_splits"):
        layer()({"f": ragged}, weights={"f": other})
    with pytest.raises(InvalidArgumentError, match="like the keys"):
        layer()({"f": KEYS.reshape(2, 2)}, weights={"f": np.ones((4, 1), np.float32)})


def test_a_table_configuration_in_two_layers_is_reported():
    table = hotrow.TableConfig("items", 4)
    feature = hotrow.FeatureConfig("f", table)
    one = hotrow.DistributedEmbedding(feature, name="one")
    line = r"^two: table 'items' is also a table of one, but has rows of its own here; to share "
    with pytest.warns(UserWarning, match=line) as caught:
        two = hotrow.DistributedEmbedding(feature, name="two")
    assert [warning.filename for warning in caught] == [__file__]
    assert one.tables["items"].handle != two.tables["items"].handle
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hotrow.DistributedEmbedding.from_config(one.get_config())
        hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", dataclasses.replace(table)))


def test_a_graph_of_another_width_than_its_table_is_refused():
    from hotrow.ops import library

    one, other = layer(), layer()
    assert one.tables["t"].handle != other.tables["t"].handle
    attributes = one.layout.op_attributes([one.tables["t"].handle])
    with pytest.raises(tf.errors.FailedPreconditionError, match="width 4; the graph needs 1"):
        library.load().hotrow_lookup(
            anchor=one.anchor.value,
            learning_rates=tf.zeros([1]),
            keys=[tf.constant(KEYS)],
            row_splits=[tf.zeros([0], tf.int64)],
            weights=[tf.zeros([0])],
            insert=True,
            **{**attributes, "widths": [1]},
        )
