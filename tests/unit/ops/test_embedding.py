"""The Keras layer in all the ways it is used, and the traps of design D3."""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.errors import InvalidArgumentError, UnimplementedError

KEYS = np.array([1, 2, 3, 1], np.int64)


def layer(update="step", optimizer=None, features=("f",), **options):
    table = hotrow.TableConfig("t", 4, optimizer=optimizer or hotrow.SGD(1.0), combiner="sum")
    return hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig(name, table) for name in features], seed=3, update=update, **options
    )


def rows(embedding, keys=(1, 2, 3)):
    return embedding.tables["t"].lookup(np.array(keys, np.int64))


class Model(keras.Model):
    """Sum of the embedded features through one dense unit."""

    def __init__(self, embedding, calls=1):
        super().__init__()
        self.embedding = embedding
        self.dense = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        self.calls = calls

    def call(self, keys, training=False):
        total = sum(self.embedding({"f": keys}, training=training)["f"] for _ in range(self.calls))
        return self.dense(total)


# --- use ---


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


# --- traps of design D3 ---


def test_two_uses_of_a_layer_commit_once_with_the_sum_of_gradients():
    once, twice = layer(optimizer=hotrow.Adagrad(0.5)), layer(optimizer=hotrow.Adagrad(0.5))
    for embedding, calls, weight in ((once, 1, 2.0), (twice, 2, 1.0)):
        with tf.GradientTape() as tape:
            total = sum(embedding({"f": KEYS}, training=True)["f"] for _ in range(calls))
            loss = weight * tf.reduce_sum(total)
        variables = embedding.trainable_variables
        keras.optimizers.SGD().apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
    assert twice.tables["t"].step == 1
    np.testing.assert_allclose(rows(twice), rows(once), atol=1e-6)


def test_two_uses_with_update_in_backward_are_refused_by_name():
    model = Model(layer("backward"), calls=2)
    model.compile("sgd", "mse")
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        model.train_on_batch(KEYS, np.ones(4))


def test_a_frozen_layer_neither_learns_nor_inserts():
    model = Model(layer())
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.zeros(4))
    digest = model.embedding.tables["t"].digest()
    model.embedding.trainable = False
    model.compile("sgd", "mse")
    model.fit(np.array([1, 2, 77]), np.ones(3), epochs=2, verbose=0)
    assert model.embedding.tables["t"].digest() == digest
    model.embedding.trainable = True
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.ones(4))
    assert model.embedding.tables["t"].digest() != digest


def test_learned_weights_of_a_frozen_layer_do_not_move_rows():
    embedding = layer(trainable=False)
    scale = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        weights = tf.ones([4]) * scale
        loss = tf.reduce_sum(embedding({"f": KEYS}, weights={"f": weights}, training=True)["f"])
    assert tape.gradient(loss, scale) is None
    assert embedding.tables["t"].step == 0


@pytest.mark.parametrize("make", [
    pytest.param(lambda k: keras.optimizers.SGD(0.1, gradient_accumulation_steps=k), id="SGD"),
    pytest.param(lambda k: keras.optimizers.Adam(0.1, gradient_accumulation_steps=k), id="Adam"),
])  # fmt: skip
def test_gradient_accumulation_commits_the_mean_on_its_last_micro_step(make):
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    optimizer = make(3)
    steps = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
        variables = embedding.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        steps.append(embedding.tables["t"].step)
    assert steps == [0, 0, 1, 1, 1, 2]
    np.testing.assert_allclose(rows(embedding), start - 2 * np.array([[2], [1], [1]]), atol=1e-5)


def test_gradient_accumulation_in_fit_equals_one_big_batch():
    small, big = Model(layer()), Model(layer())
    for model, accumulation in ((small, 2), (big, None)):
        model.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=accumulation), "mse")
    labels = np.array([1.0, 2.0, 3.0, 4.0])
    small.fit(KEYS, labels, batch_size=2, shuffle=False, verbose=0)
    big.fit(KEYS, labels, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(rows(small.embedding), rows(big.embedding), atol=1e-6)


def test_scaled_or_clipped_gradients_scale_the_rows_too():
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    variables = embedding.trainable_variables
    gradients = [g * 0.25 for g in tape.gradient(loss, variables)]
    keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(rows(embedding), start - 0.25 * np.array([[2], [1], [1]]), atol=1e-6)


def test_a_gradient_computed_twice_by_a_persistent_tape_is_applied_once():
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    variables = embedding.trainable_variables
    tape.gradient(loss, variables)
    gradients = tape.gradient(loss, variables)
    keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


@pytest.mark.parametrize("optimizer", [
    pytest.param(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), id="wrapper"),
    pytest.param(lambda: keras.optimizers.SGD(loss_scale_factor=128.0), id="factor"),
])  # fmt: skip
def test_loss_scaling_is_refused_by_name(optimizer):
    model = Model(layer())
    model.compile(optimizer(), "mse")
    with pytest.raises(InvalidArgumentError, match="loss scaling is not supported"):
        model.train_on_batch(KEYS, np.ones(4))
    assert model.embedding.tables["t"].step == 0


def test_the_policy_mixed_float16_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="use 'mixed_bfloat16' or 'float32'"):
        layer(dtype="mixed_float16")


def test_keras_does_not_compile_the_layer_with_xla():
    model = Model(layer())
    model.compile("sgd", "mse", jit_compile="auto")
    model.train_on_batch(KEYS, np.ones(4))
    assert model.jit_compile is False


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "rmsprop", "ftrl", "lion"])
def test_every_keras_optimizer_commits_and_leaves_the_anchor_as_it_is(optimizer):
    model = Model(layer())
    model.compile(optimizer, "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    assert model.embedding.tables["t"].step == 2
    assert (model.embedding.anchor.numpy() == -1).all()


@pytest.mark.parametrize("write", [
    pytest.param(lambda v, g: v.assign_sub(0.1 * g), id="assign_sub"),
    pytest.param(lambda v, g: v.assign(v - 0.1 * g), id="assign"),
    pytest.param(lambda v, g: v.assign_add(-0.1 * g), id="assign_add"),
])  # fmt: skip
def test_a_hand_written_update_of_all_variables_commits(write):
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    for variable, gradient in zip(*gradients_of(embedding), strict=True):
        write(variable, gradient)
    assert embedding.tables["t"].step == 1
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


def gradients_of(embedding, weight=1.0):
    with tf.GradientTape() as tape:
        loss = weight * tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    return embedding.trainable_variables, tape.gradient(loss, embedding.trainable_variables)


def apply(optimizer, variables, gradients):
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def test_gradients_that_were_only_looked_at_do_not_reach_the_next_step():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    gradients_of(embedding, weight=100.0)
    gradients_of(embedding, weight=float("nan"))
    apply(optimizer, *gradients_of(embedding))
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


def test_gradients_of_several_losses_may_be_applied_one_after_the_other():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    first, second = gradients_of(embedding), gradients_of(embedding, weight=2.0)
    apply(optimizer, *first)
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)
    apply(optimizer, *second)
    np.testing.assert_allclose(rows(embedding), start - 3 * np.array([[2], [1], [1]]), atol=1e-5)


def test_gradients_that_a_loop_adds_up_are_applied_as_their_sum():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    (variables, one), (_, two) = gradients_of(embedding), gradients_of(embedding, weight=2.0)
    apply(optimizer, variables, [a + 0.5 * b for a, b in zip(one, two, strict=True)])
    np.testing.assert_allclose(rows(embedding), start - 2 * np.array([[2], [1], [1]]), atol=1e-6)


def test_a_norm_over_all_gradients_does_not_see_the_anchor():
    embedding = layer()
    _, (gradient,) = gradients_of(embedding)
    assert 0 < float(tf.norm(gradient)) < 1e-5


def test_accumulation_counts_micro_steps_whatever_the_uses_of_the_layer():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    apply(optimizer, *gradients_of(embedding))
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"]) for _ in range(2))
    variables = embedding.trainable_variables
    apply(optimizer, variables, tape.gradient(loss, variables))
    np.testing.assert_allclose(rows(embedding), start - 1.5 * np.array([[2], [1], [1]]), atol=1e-6)


def test_more_micro_steps_than_slots_are_refused_and_fewer_are_exact():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=257)
    with pytest.raises(tf.errors.FailedPreconditionError, match="more than 256 backward passes"):
        for _ in range(257):
            apply(optimizer, *gradients_of(embedding))
    assert embedding.tables["t"].step == 0


def test_writing_past_keras_is_refused_at_the_next_lookup():
    embedding = layer()
    variables, gradients = gradients_of(embedding)
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.value.assign_sub(0.1 * gradient)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"not their \.value"):
        gradients_of(embedding)


def test_averaged_weights_are_refused_by_name():
    model = Model(layer())
    model.compile(keras.optimizers.SGD(use_ema=True), "mse")
    with pytest.raises(InvalidArgumentError, match="leave use_ema out"):
        model.train_on_batch(KEYS, np.ones(4))


@pytest.mark.parametrize("change", [
    pytest.param(lambda g: g * 0.5, id="scaled"),
    pytest.param(lambda g: g + g, id="added"),
])  # fmt: skip
def test_update_in_backward_refuses_gradients_that_changed_afterwards(change):
    embedding, optimizer = layer("backward"), keras.optimizers.SGD(0.1)
    apply(optimizer, *gradients_of(embedding))
    variables, gradients = gradients_of(embedding)
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        apply(optimizer, variables, [change(g) for g in gradients])


def test_update_in_backward_refuses_gradient_accumulation():
    embedding = layer("backward")
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        apply(optimizer, *gradients_of(embedding))


def test_update_in_backward_goes_on_after_a_step_that_was_interrupted():
    embedding, optimizer = layer("backward"), keras.optimizers.SGD(0.1)
    gradients_of(embedding)  # never applied, as after Ctrl-C
    apply(optimizer, *gradients_of(embedding))
    assert embedding.tables["t"].step == 2


def test_gradients_that_are_never_applied_end_in_an_error():
    embedding = layer()
    with pytest.raises(tf.errors.FailedPreconditionError, match="trainable_variables"):
        for _ in range(1025):
            gradients_of(embedding)


def test_a_lookup_of_constant_keys_is_not_folded():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def look():
        return embedding({"f": tf.constant([1], tf.int64)})["f"]

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    before = look().numpy()
    optimizer.apply_gradients(
        zip(
            tape.gradient(loss, embedding.trainable_variables),
            embedding.trainable_variables,
            strict=True,
        )
    )
    np.testing.assert_allclose(look().numpy(), before - 2, atol=1e-6)


# --- saving ---


def trained():
    model = Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.compile("adam", "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    return model


def test_save_weights_and_load_weights_keep_the_tables(tmp_path):
    model, other = trained(), Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.save_weights(tmp_path / "w.weights.h5")
    other(KEYS)
    other.embedding({"f": np.array([50])}, training=True)  # a row that must go
    other.load_weights(tmp_path / "w.weights.h5")
    assert other.embedding.tables["t"].digest() == model.embedding.tables["t"].digest()
    assert other.embedding.tables["t"].step == 2


def test_model_checkpoint_and_save_keep_the_tables(tmp_path):
    embedding = layer(optimizer=hotrow.Adagrad(0.3))
    inputs = {"f": keras.Input((), dtype="int64", name="f")}
    model = keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)["f"]))
    model.compile("adam", "mse")
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss")
    model.fit({"f": KEYS}, np.ones(4), epochs=1, verbose=0, callbacks=[checkpoint])
    loaded = keras.models.load_model(tmp_path / "best.keras")
    (restored,) = (x for x in loaded.layers if isinstance(x, hotrow.DistributedEmbedding))
    assert restored.tables["t"].digest() == embedding.tables["t"].digest()
    np.testing.assert_array_equal(
        loaded.predict({"f": KEYS}, verbose=0), model.predict({"f": KEYS}, verbose=0)
    )
    loaded.fit({"f": KEYS}, np.ones(4), epochs=1, verbose=0)
    assert restored.tables["t"].step == 2


def test_tensorflow_checkpoints_are_refused_by_name(tmp_path):
    model = trained()
    with pytest.raises(UnimplementedError, match=r"tf\.train\.Checkpoint does not keep"):
        tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
    assert not list(tmp_path.iterdir())


def test_weights_of_another_table_are_refused_by_name(tmp_path):
    trained().save_weights(tmp_path / "w.weights.h5")
    other = Model(layer(optimizer=hotrow.SGD(0.3)))  # lines without state
    other(KEYS)
    # Keras wraps it.
    with pytest.raises(ValueError, match="lines of 8 floats; the layer needs 't' of dim 4 with 4"):
        other.load_weights(tmp_path / "w.weights.h5")


def test_a_table_goes_with_its_layer_and_its_functions_say_so():
    embedding = layer()
    look = tf.function(lambda k: embedding({"f": k})["f"]).get_concrete_function(
        tf.TensorSpec([None], tf.int64)
    )
    look(tf.constant([1], tf.int64))
    handle = embedding.tables["t"].handle
    embedding._tables.clear()
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError, match=handle):
        look(tf.constant([1], tf.int64))


# --- bad input ---


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param({}, "inputs lacks f", id="missing feature"),
        pytest.param(
            {"f": KEYS, "ff": KEYS}, "unknown feature 'ff' .did you mean 'f'", id="unknown"
        ),
        pytest.param(KEYS, "must be a dictionary by feature", id="no dictionary"),
        pytest.param({"f": np.ones(2, bool)}, "keys of type bool", id="booleans"),
        pytest.param({"f": np.array(["a"])}, "strings become keys", id="strings"),
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="not exact integers"):
        embedding({"f": np.array([value], np.float32)}, training=True)


def test_configurations_that_cannot_be_are_refused():
    with pytest.raises(InvalidArgumentError, match="embedding_dim is 0; must be 1 or more"):
        hotrow.TableConfig("t", 0)
    with pytest.raises(InvalidArgumentError, match="did you mean 'mean'"):
        hotrow.TableConfig("t", 1, combiner="maen")
    with pytest.raises(InvalidArgumentError, match="optimizer is 'adam'; must be one of"):
        hotrow.TableConfig("t", 1, optimizer="adam")
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
