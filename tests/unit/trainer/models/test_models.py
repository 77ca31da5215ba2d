"""The models against their papers' formulas written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.config import parse_config
from hotrow.trainer.data import Batch, Keys
from hotrow.trainer.model_inputs import input_signature, model_inputs
from hotrow.trainer.models import build_model
from hotrow.trainer.models.dlrm import pairwise_dots
from hotrow.trainer.train_step import make_forward, make_optimizer, make_train_step

B = 6
DLRM = {"arch": "dlrm", "bottom": [5, 4], "top": [7]}
WIDE_DEEP = {"arch": "wide_deep", "hidden": [7, 3]}
LOGISTIC = {"arch": "logistic"}


def config_of(model, **sections):
    return parse_config(
        {
            "name": "m",
            "seed": 3,
            "data": {"format": "criteo", "train": "/none", "batch_size": B},
            "features": {
                "dense": {"columns": ["I1", "I2"], "transform": "log"},
                "sparse": {"columns": ["C1", "C2", "C3"], "dim": 4},
            },
            "model": model,
            **sections,
        }
    )


def batch_of(config, seed=0):
    random = np.random.default_rng(seed)
    dense = random.normal(size=(B, len(config.features.dense_columns()))).astype(np.float32)
    if dense.size:
        dense[0, 0] = np.nan
    sparse = {c.name: Keys(random.integers(0, 4, B)) for c in config.features.sparse_columns()}
    return Batch(dense, sparse, (random.random(B) < 0.5).astype(np.float32))


def relu(x):
    return np.maximum(x, 0)


def transformed(dense):
    return np.nan_to_num(np.sign(dense) * np.log1p(np.abs(dense)))


def rows(model, table, batch, column):
    return model.tables()[table].lookup(batch.sparse[column].keys, insert=True)


def weights_of(model):
    return {v.path: v.numpy() for v in model.dense_variables() if "seed_generator" not in v.path}


def test_pairwise_dots_are_the_lower_triangle_without_the_diagonal():
    vectors = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    expected = [[np.dot(row[i], row[j]) for i in range(4) for j in range(i)] for row in vectors]
    np.testing.assert_allclose(pairwise_dots(tf.constant(vectors)), expected, rtol=1e-6)


def test_dlrm_computes_the_papers_formula():
    config = config_of(DLRM)
    model, batch = build_model(config), batch_of(config)
    w = weights_of(model)
    bottom = transformed(batch.dense)
    for i in (0, 1):
        prefix = f"dlrm/bottom/bottom_{i}_dense"
        bottom = relu(bottom @ w[f"{prefix}/kernel"] + w[f"{prefix}/bias"])
    vectors = [bottom] + [rows(model, c, batch, c) for c in ("C1", "C2", "C3")]
    dots = [np.sum(vectors[i] * vectors[j], axis=1) for i in range(4) for j in range(i)]
    top = np.concatenate([bottom, np.stack(dots, axis=1)], axis=1)
    top = relu(top @ w["dlrm/top/top_0_dense/kernel"] + w["dlrm/top/top_0_dense/bias"])
    expected = top @ w["dlrm/top_output/kernel"] + w["dlrm/top_output/bias"]
    np.testing.assert_allclose(model(model_inputs(batch)), expected[:, 0], rtol=1e-5, atol=1e-6)


def test_dlrm_without_dense_columns_reads_the_products_only():
    features = {"sparse": {"columns": ["C1", "C2", "C3"], "dim": 4}}
    config = config_of({"arch": "dlrm", "top": [5]}, features=features)
    model = build_model(config)
    assert model.bottom is None
    assert weights_of(model)["dlrm/top/top_0_dense/kernel"].shape == (3, 5)
    assert model(model_inputs(batch_of(config))).shape == (B,)


def test_wide_and_deep_computes_the_papers_formula():
    config = config_of(WIDE_DEEP, tables={"wide": {"initializer": {"uniform": 0.5}}})
    model, batch = build_model(config), batch_of(config)
    model.linear.kernel.assign([[0.3], [-0.2]])
    model.linear.bias.assign([0.7])
    w = weights_of(model)
    dense = transformed(batch.dense)
    wide = dense @ [[0.3], [-0.2]] + 0.7
    deep = dense
    for column in ("C1", "C2", "C3"):
        wide = wide + rows(model, f"{column}/wide", batch, column)
        deep = np.concatenate([deep, rows(model, column, batch, column)], axis=1)
    for i in (0, 1):
        prefix = f"wide_deep/deep/deep_{i}_dense"
        deep = relu(deep @ w[f"{prefix}/kernel"] + w[f"{prefix}/bias"])
    expected = wide + deep @ w["wide_deep/deep_output/kernel"]
    np.testing.assert_allclose(model(model_inputs(batch)), expected[:, 0], rtol=1e-5, atol=1e-6)


def test_a_step_of_logistic_regression_is_gradient_descent_on_the_mean_loss():
    config = config_of(
        LOGISTIC,
        optimizer={"name": "sgd", "learning_rate": 0.1},
        tables={"default": {"optimizer": "sgd", "learning_rate": 0.5}},
    )
    model, batch = build_model(config), batch_of(config)
    optimizer = make_optimizer(config.optimizer, model)
    logits = make_train_step(model, optimizer, config)(model_inputs(batch), batch.labels)
    np.testing.assert_array_equal(logits, np.zeros(B))  # everything starts at zero
    gradient = (0.5 - batch.labels) / B
    dense = transformed(batch.dense)
    np.testing.assert_allclose(model.linear.kernel[:, 0], -0.1 * dense.T @ gradient, atol=1e-6)
    np.testing.assert_allclose(model.linear.bias, [-0.1 * gradient.sum()], atol=1e-6)
    for column in ("C1", "C2", "C3"):
        keys = batch.sparse[column].keys
        for key in np.unique(keys):
            row = model.tables()[f"{column}/wide"].lookup(np.array([key]))
            np.testing.assert_allclose(row[0, 0], -0.5 * gradient[keys == key].sum(), atol=1e-6)


def test_the_penalty_on_dense_kernels_is_part_of_the_step():
    plain, penalised = (
        config_of(model, optimizer={"name": "sgd", "learning_rate": 1.0})
        for model in (WIDE_DEEP, {**WIDE_DEEP, "l2": 0.25})
    )
    kernels = []
    for config in (plain, penalised):
        model, batch = build_model(config), batch_of(config)
        before = model.output_layer.kernel.numpy()
        step = make_train_step(model, make_optimizer(config.optimizer, model), config)
        step(model_inputs(batch), batch.labels)
        kernels.append(model.output_layer.kernel.numpy())
    np.testing.assert_allclose(kernels[0] - kernels[1], 2 * 0.25 * before, atol=1e-6)


@pytest.mark.parametrize("model", [DLRM, WIDE_DEEP, LOGISTIC], ids=lambda m: m["arch"])
def test_training_lowers_the_loss_and_evaluation_changes_no_table(model):
    config = config_of(model, optimizer={"name": "adam", "learning_rate": 0.05})
    network, batch = build_model(config), batch_of(config)
    optimizer = make_optimizer(config.optimizer, network)
    step, forward = make_train_step(network, optimizer, config), make_forward(network, config)
    inputs = model_inputs(batch)

    def loss(logits):
        z = np.asarray(logits)
        return np.mean(np.logaddexp(0, z) - batch.labels * z)

    before = loss(forward(inputs))
    for _ in range(30):
        step(inputs, batch.labels)
    digests = {name: table.digest() for name, table in network.tables().items()}
    assert loss(forward(inputs)) < 0.6 * before
    assert {name: table.step for name, table in network.tables().items()} == dict.fromkeys(
        digests, 30
    )
    unseen = {name: Keys(keys.keys + 100) for name, keys in batch.sparse.items()}
    forward(model_inputs(Batch(batch.dense, unseen, None)))
    assert {name: table.digest() for name, table in network.tables().items()} == digests


@pytest.mark.parametrize("model", [DLRM, WIDE_DEEP, LOGISTIC], ids=lambda m: m["arch"])
def test_equal_seeds_make_equal_models_and_other_seeds_others(model):
    def logits(seed):
        config = config_of(model, seed=seed, tables={"wide": {"initializer": {"normal": 1}}})
        network, batch = build_model(config), batch_of(config)
        return network(model_inputs(batch), training=True).numpy()

    np.testing.assert_array_equal(logits(1), logits(1))
    assert not np.array_equal(logits(1), logits(2))


@pytest.mark.parametrize("model", [DLRM, WIDE_DEEP, LOGISTIC], ids=lambda m: m["arch"])
def test_logits_from_embeddings_use_stock_ops_only(model):
    config = config_of(model)
    network = build_model(config)
    embedded = network.embed(model_inputs(batch_of(config))["sparse"], {})

    @tf.function
    def head(dense, embedded):
        return network.logits(dense, embedded)

    graph = head.get_concrete_function(tf.TensorSpec([None, 2], tf.float32), embedded).graph
    assert not [op.type for op in graph.get_operations() if "otrow" in op.type]
    np.testing.assert_array_equal(
        head(tf.constant(batch_of(config).dense), embedded),
        network(model_inputs(batch_of(config))),
    )


def test_dropout_acts_in_training_only_and_by_the_seed():
    config = config_of({**WIDE_DEEP, "dropout": 0.5})
    inputs = model_inputs(batch_of(config))
    one, other = build_model(config), build_model(config)
    first = one(inputs, training=True).numpy()
    np.testing.assert_array_equal(first, other(inputs, training=True))
    assert not np.array_equal(first, one(inputs, training=True))
    np.testing.assert_array_equal(one(inputs), one(inputs))


def test_batch_normalisation_learns_its_statistics_in_training_only():
    config = config_of({**DLRM, "batch_norm": True})
    model = build_model(config)
    inputs = model_inputs(batch_of(config))
    before = model(inputs).numpy()
    np.testing.assert_array_equal(before, model(inputs))
    model(inputs, training=True)
    assert not np.array_equal(before, model(inputs))


def test_several_keys_a_row_are_pooled_with_their_weights():
    config = parse_config(
        {
            "name": "m",
            "data": {"format": "libsvm", "train": "/none", "weights": True},
            "features": {
                "sparse": {"columns": ["ids"], "dim": 2, "hash": False, "combiner": "sum"}
            },
            "model": {"arch": "wide_deep", "hidden": [2]},
        }
    )
    model = build_model(config)
    keys = Keys(np.array([5, 6, 5]), np.array([0, 2, 2, 3]), np.array([1.0, 0.5, 2.0], np.float32))
    batch = Batch(np.zeros((3, 0), np.float32), {"ids": keys}, None)
    inputs = model_inputs(batch)
    assert tf.nest.map_structure(
        lambda spec, value: spec.is_compatible_with(value),
        input_signature(config)["sparse"],
        inputs["sparse"],
    )["ids"]
    pooled = model.embed(inputs["sparse"], inputs["weights"], training=True)["ids"].numpy()
    five, six = model.tables()["ids"].lookup(np.array([5, 6]))
    np.testing.assert_allclose(pooled, [five + 0.5 * six, [0, 0], 2 * five], rtol=1e-6)


def test_columns_that_share_a_table_share_its_rows_but_not_the_linear_weights():
    features = {"sparse": {"columns": ["C1", "C2"], "dim": 4, "table": "both"}}
    config = config_of(WIDE_DEEP, features=features)
    model = build_model(config)
    assert list(model.tables()) == ["both", "C1/wide", "C2/wide"]
    keys = tf.constant([7, 8], tf.int64)
    embedded = model.embed({"C1": keys, "C2": keys}, {}, training=True)
    np.testing.assert_array_equal(embedded["C1"], embedded["C2"])
    assert model.tables()["both"].size == 2


def test_a_model_of_dense_columns_alone_has_no_tables():
    config = config_of(WIDE_DEEP, features={"dense": {"columns": ["I1", "I2"]}})
    model, batch = build_model(config), batch_of(config)
    step = make_train_step(model, make_optimizer(config.optimizer, model), config)
    assert step(model_inputs(batch), batch.labels).shape == (B,)
    assert model.tables() == {}


def test_tables_get_what_their_settings_say():
    settings = {"optimizer": "adagrad", "learning_rate": 0.5, "initial_accumulator": 0.25}
    model = build_model(config_of(WIDE_DEEP, tables={"C2": settings}))
    assert model.tables()["C2"].config.optimizer == hotrow.Adagrad(0.5, 0.25)
    assert model.tables()["C1/wide"].config.optimizer == hotrow.Adagrad()


def test_the_dense_optimizer_takes_a_schedule_and_clips():
    config = config_of(
        WIDE_DEEP,
        optimizer={
            "name": "sgd",
            "learning_rate": {
                "schedule": "piecewise_constant_decay", "boundaries": [0], "values": [0.5, 0.25],
            },
            "global_clipnorm": 1e-3,
        },
    )  # fmt: skip
    model, batch = build_model(config), batch_of(config)
    optimizer = make_optimizer(config.optimizer, model)
    step = make_train_step(model, optimizer, config)
    moves = []
    for _ in range(2):
        before = [variable.numpy() for variable in model.dense_variables()]
        step(model_inputs(batch), batch.labels)
        after = [variable.numpy() for variable in model.dense_variables()]
        moves.append(np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))))
    np.testing.assert_allclose(moves, [0.5e-3, 0.25e-3], rtol=1e-3)
