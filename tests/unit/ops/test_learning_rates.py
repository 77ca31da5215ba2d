"""Learning-rate schedules of tables: Keras' own at the table's step, and those of users."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, apply, gradients_of, layer, rows

import hotrow
from hotrow.errors import InvalidArgumentError

schedules = keras.optimizers.schedules
SCHEDULES = [
    schedules.CosineDecay(0.5, 4, 0.1, warmup_target=1.0, warmup_steps=2),
    schedules.CosineDecayRestarts(0.5, 3),
    schedules.ExponentialDecay(0.5, 2, 0.5, staircase=True),
    schedules.InverseTimeDecay(0.5, 2, 0.5),
    schedules.PiecewiseConstantDecay([2, 5], [0.5, 0.25, 0.125]),
    schedules.PolynomialDecay(0.5, 5, 0.1, power=2.0),
]


@keras.saving.register_keras_serializable("hotrow_tests")
class Alternating(schedules.LearningRateSchedule):
    """`rate` in even steps, 0 in odd ones."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def __call__(self, step):
        return tf.where(tf.equal(tf.cast(step, tf.int64) % 2, 0), self.rate, 0.0)

    def get_config(self):
        return {"rate": self.rate}


@keras.saving.register_keras_serializable("hotrow_tests")
class Ending(Alternating):
    """0.5 in the first step, then `rate`."""

    def __call__(self, step):
        return tf.where(tf.equal(tf.cast(step, tf.int64), 0), 0.5, self.rate)


class Unregistered(Alternating):
    pass


def moves_of(embedding, steps, optimizer=None, in_function=True):
    """Returns how far the weights of key 2, with gradient 1, went in each step."""
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    optimizer.build(embedding.trainable_variables)

    def step():
        apply(optimizer, *gradients_of(embedding))

    step = tf.function(step) if in_function else step
    at = [layer().tables["t"].lookup(np.array([2]), insert=True)[0, 0]]
    for _ in range(steps):
        step()
        at.append(rows(embedding, [2])[0, 0])
    return -np.diff(at)


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_a_step_uses_the_schedule_at_the_number_of_steps_before_it(schedule, update):
    embedding = layer(update, optimizer=hotrow.SGD(schedule))
    expected = [float(schedule(step)) for step in range(8)]
    np.testing.assert_allclose(moves_of(embedding, 8), expected, atol=1e-6)


def test_a_schedule_works_eagerly():
    embedding = layer(optimizer=hotrow.SGD(SCHEDULES[2]))
    expected = [0.5, 0.5, 0.25, 0.25]
    np.testing.assert_allclose(moves_of(embedding, 4, in_function=False), expected, atol=1e-6)


def test_a_schedule_counts_commits_under_gradient_accumulation():
    embedding = layer(optimizer=hotrow.SGD(SCHEDULES[2]))
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    moves = moves_of(embedding, 12, accumulating)
    expected = [0, 0, 0.5, 0, 0, 0.5, 0, 0, 0.25, 0, 0, 0.25]
    np.testing.assert_allclose(moves, expected, atol=1e-6)


def test_a_schedule_goes_on_from_the_step_that_was_restored():
    embedding = layer(optimizer=hotrow.SGD(SCHEDULES[4]))
    embedding.tables["t"].step = 5
    np.testing.assert_allclose(moves_of(embedding, 2), [0.25, 0.125], atol=1e-6)


def test_tables_with_and_without_a_schedule_stand_side_by_side():
    tables = [
        hotrow.TableConfig("a", 2, optimizer=hotrow.SGD(1.0), combiner="sum"),
        hotrow.TableConfig("b", 2, optimizer=hotrow.SGD(SCHEDULES[2]), combiner="sum"),
        hotrow.TableConfig("c", 2, optimizer=hotrow.SGD(0.25), combiner="sum"),
    ]
    embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig(t.name, t) for t in tables])
    key = np.array([3])
    for _ in range(3):
        before = [t.lookup(key, insert=True) for t in embedding.tables.values()]
        with tf.GradientTape() as tape:
            outputs = embedding({t.name: key for t in tables}, training=True)
            loss = tf.add_n([tf.reduce_sum(rows) for rows in outputs.values()])
        variables = embedding.trainable_variables
        apply(keras.optimizers.SGD(), variables, tape.gradient(loss, variables))
    after = [t.lookup(key) for t in embedding.tables.values()]
    moves = [float((b - a)[0, 0]) for a, b in zip(after, before, strict=True)]
    np.testing.assert_allclose(moves, [1.0, 0.25, 0.25], atol=1e-6)


def test_the_dense_part_and_a_table_follow_one_schedule_alike():
    schedule = schedules.ExponentialDecay(0.5, 1, 0.5)
    model = Model(layer(optimizer=hotrow.SGD(schedule)))
    model.compile(keras.optimizers.SGD(schedule), "mse")
    before = None
    for step in range(3):
        before = [model.dense.kernel.numpy()] if model.built else None
        start = rows(model.embedding, [1])
        model.train_on_batch(KEYS, np.ones(4))
        if step == 0:
            continue
        moved = np.abs(model.dense.kernel.numpy() - before[0]).max()
        assert moved > 0
        assert np.abs(rows(model.embedding, [1]) - start).max() > 0
    assert model.embedding.tables["t"].step == int(model.optimizer.iterations) == 3


def test_a_schedule_of_a_user_works_when_it_is_registered():
    embedding = layer(optimizer=hotrow.SGD(Alternating(0.5)))
    np.testing.assert_allclose(moves_of(embedding, 4), [0.5, 0, 0.5, 0], atol=1e-6)
    by_name = hotrow.SGD(hotrow.Schedule("hotrow_tests>Alternating", {"rate": 0.5}))
    np.testing.assert_allclose(moves_of(layer(optimizer=by_name), 2), [0.5, 0], atol=1e-6)


def test_a_layer_with_a_schedule_is_made_again_from_its_configuration():
    embedding = layer(optimizer=hotrow.SGD(Alternating(0.5)), global_clipnorm=9.0)
    again = hotrow.DistributedEmbedding.from_config(embedding.get_config())
    assert again.layout == embedding.layout
    assert again.get_config() == embedding.get_config()
    np.testing.assert_allclose(moves_of(again, 2), [0.5, 0], atol=1e-6)


def test_schedules_that_are_not_known_or_refuse_their_options_are_named():
    with pytest.raises(InvalidArgumentError, match=r"'Unregistered' is not known; legal: CosineD"):
        layer(optimizer=hotrow.SGD(Unregistered(0.5)))
    wrong = hotrow.Schedule("PiecewiseConstantDecay", {"boundaries": [1], "values": [1.0]})
    with pytest.raises(InvalidArgumentError, match=r"Schedule PiecewiseConstantDecay: .*length"):
        layer(optimizer=hotrow.SGD(wrong))
    wrong = hotrow.Schedule("hotrow_tests>Alternating", {"rat": 0.5})
    with pytest.raises(InvalidArgumentError, match=r"Alternating: .*unexpected keyword"):
        layer(optimizer=hotrow.SGD(wrong))
    with pytest.raises(InvalidArgumentError, match=r"starts with -1\.0; must be 0 or more"):
        layer(optimizer=hotrow.SGD(Alternating(-1.0)))


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize(
    ("optimizer", "end", "message"),
    [
        (hotrow.SGD, -0.5, "gives.*-0.5.*must be 0 or more"),
        (hotrow.SGD, float("nan"), "gives.*nan.*must be 0 or more"),
        (hotrow.Ftrl, 0.0, "table t: .*gives.*0.*must be positive"),
    ],
)
def test_a_rate_that_cannot_be_ends_the_step(optimizer, end, message, update):
    embedding = layer(update, optimizer=optimizer(Ending(end)))
    moves_of(embedding, 1)
    before = rows(embedding)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        moves_of(embedding, 1)
    np.testing.assert_array_equal(rows(embedding), before)
    assert embedding.tables["t"].step == 1


@pytest.mark.parametrize("update", ["step", "backward"])
def test_evaluation_after_the_last_step_does_not_ask_for_the_rate_of_a_next_one(update):
    model = Model(layer(update, optimizer=hotrow.Ftrl(Ending(0.0))))
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.ones(4))
    assert np.isfinite(model.evaluate(KEYS, np.ones(4), verbose=0))
    assert np.isfinite(model.predict(KEYS, verbose=0)).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
        model.train_on_batch(KEYS, np.ones(4))


def test_a_saved_model_of_a_layer_with_a_schedule_answers_in_its_process(tmp_path):
    model = Model(layer("backward", optimizer=hotrow.SGD(SCHEDULES[0])))
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.ones(4))
    answer = tf.function(lambda keys: model(keys), input_signature=[tf.TensorSpec([None], "int64")])
    tf.saved_model.save(model, str(tmp_path / "saved"), signatures={"answer": answer})
    expected = model.predict(KEYS, verbose=0)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    answers = loaded.signatures["answer"](keys=tf.constant(KEYS))["output_0"]
    np.testing.assert_array_equal(answers, expected)


def test_a_rate_of_0_moves_nothing():
    embedding = layer(optimizer=hotrow.SGD(Ending(0.0)))
    np.testing.assert_allclose(moves_of(embedding, 3), [0.5, 0, 0], atol=1e-6)
