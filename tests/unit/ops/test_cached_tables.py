"""Tables with a device tier: the rows of tables without one, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.prefetch import prefetch

VOCABULARY = 20_000
OPTIMIZERS: dict[str, Any] = {
    "sgd": hotrow.SGD(0.1),
    "adagrad": hotrow.Adagrad(0.1),
    "rowwise_adagrad": hotrow.RowwiseAdagrad(0.1),
    "adam": hotrow.Adam(0.01),
    "ftrl": hotrow.Ftrl(0.1),
}
# A row's way through the cache does not depend on its optimizer: all are shown by
# ops/native/tests/tiers_test.cc. Here the one with the most state; the others are slow.
ONE_HERE = pytest.mark.parametrize(
    "name",
    [name if name == "adam" else pytest.param(name, marks=pytest.mark.slow) for name in OPTIMIZERS],
)


def batches(seed: int) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Returns batches of two features with skewed keys: small ones, and larger than most caches."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(12):
        samples = 3000 if i % 4 == 3 else 128
        keys = {
            name: (VOCABULARY * rng.random((samples, 2)) ** 4).astype(np.int64)
            for name in ("user", "item")
        }
        made.append((keys, rng.random((samples, 1)).astype(np.float32)))
    return made


def train(
    table: hotrow.TableConfig, update: str
) -> tuple[list[float], hotrow.DistributedEmbedding]:
    """Trains a model of two features that share the table; returns the losses and the layer."""
    layer = hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig("user", table), hotrow.FeatureConfig("item", table, "sum")],
        seed=3,
        update=update,  # type: ignore[arg-type]
    )
    inputs = {name: keras.Input((2,), dtype="int64", name=name) for name in ("user", "item")}
    rows = layer(inputs)
    # Not from a global seed, which would stay for the tests that follow.
    start = keras.initializers.GlorotUniform(seed=7)
    score = keras.layers.Dense(1, kernel_initializer=start)(
        keras.layers.concatenate([rows["user"], rows["item"]])
    )
    model = keras.Model(inputs, score)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    losses = [float(model.train_on_batch(keys, labels)) for keys, labels in batches(5)]
    return losses, layer


@pytest.mark.parametrize("update", ["step", pytest.param("backward", marks=pytest.mark.slow)])
@ONE_HERE
def test_any_cache_ratio_gives_the_table_without_a_cache(name: str, update: str) -> None:
    plain = hotrow.TableConfig("t", 8, VOCABULARY, optimizer=OPTIMIZERS[name])
    losses, layer = train(plain, update)
    expected = layer.tables["t"]
    for ratio in (0.001, 0.01, 0.1, 1.0):
        cached = replace(plain, cache=hotrow.Cache(ratio=ratio))
        cached_losses, cached_layer = train(cached, update)
        table = cached_layer.tables["t"]
        assert cached_losses == losses
        assert table.digest() == expected.digest()
        statistics = table.statistics()
        assert statistics["cache_slots"] >= ratio * VOCABULARY
        assert statistics["cache_hits"] > 0
        assert ratio == 1.0 or statistics["cache_evicted"] > 0


def train_ahead(
    tables: list[hotrow.TableConfig], window: int
) -> tuple[list[float], hotrow.DistributedEmbedding]:
    """Trains two features a table for two epochs, windows handed over as the loop does it.

    Batches are small, but every fourth has more distinct rows than the smaller caches.
    """
    features = [
        hotrow.FeatureConfig(f"{name}{i}", table, combiner)
        for i, table in enumerate(tables)
        for name, combiner in (("user", "mean"), ("item", "sum"))
    ]
    layer = hotrow.DistributedEmbedding(features, seed=3)
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(layer.trainable_variables)
    rng = np.random.default_rng(5)
    epoch = []
    for i in range(34):
        samples = 1200 if i % 4 == 3 else 64
        keys = (VOCABULARY * rng.random((len(features), samples, 2)) ** 4).astype(np.int64)
        epoch.append({f.name: tf.constant(k) for f, k in zip(features, keys, strict=True)})

    @tf.function(reduce_retracing=True)
    def step(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = layer(inputs, training=True)
            loss = tf.add_n([tf.reduce_mean((r - 1.0) ** 2) for r in rows.values()])
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    losses = []
    for number in range(2):
        fresh = number == 1

        def hand_over(batches: list[dict[str, tf.Tensor]]) -> None:
            nonlocal fresh
            layer.prefetch(batches)
            # Once, however fast the steps are, rows that left the cache come before their batch.
            for table in layer.tables.values() if fresh else ():
                table.wait_for_prefetch()
            fresh = False

        losses += [float(step(inputs)) for inputs in prefetch(epoch, window, hand_over)]
    for table in layer.tables.values():
        table.wait_for_prefetch()
    return losses, layer


@ONE_HERE
def test_any_cache_ratio_and_prefetch_gives_the_table_without_a_cache(name: str) -> None:
    plain = hotrow.TableConfig("t", 8, VOCABULARY, optimizer=OPTIMIZERS[name])
    losses, layer = train_ahead([plain], 0)
    expected = layer.tables["t"]
    for ratio in (0.001, 0.01, 0.1, 1.0):
        for window in (0, 1, 8, 32):
            cached = replace(plain, cache=hotrow.Cache(ratio=ratio))
            cached_losses, cached_layer = train_ahead([cached], window)
            table = cached_layer.tables["t"]
            case = f"ratio {ratio}, prefetching {window}"
            assert cached_losses == losses, case
            assert table.digest() == expected.digest(), case
            statistics = table.statistics()
            assert statistics["cache_misses"] > 0, case
            # With as many slots as keys a set may still be full.
            assert ratio == 1 or statistics["cache_evicted"] > 0, case
            assert ratio == 1 or (statistics["cache_prefetched"] > 0) == (window > 0), case
            assert statistics["cache_steps"] == 68


@ONE_HERE
def test_lines_on_disk_give_the_table_in_memory(name: str, tmp_path: Path) -> None:
    plain = hotrow.TableConfig("t", 8, VOCABULARY, optimizer=OPTIMIZERS[name])
    losses, layer = train_ahead([plain], 0)
    expected = layer.tables["t"]
    for ratio, window in ((0.001, 0), (0.001, 8), (0.1, 1), (1.0, 32)):
        cache = hotrow.Cache(ratio=ratio, disk=str(tmp_path))
        disk_losses, disk_layer = train_ahead([replace(plain, cache=cache)], window)
        table = disk_layer.tables["t"]
        case = f"ratio {ratio}, prefetching {window}"
        assert disk_losses == losses, case
        assert table.digest() == expected.digest(), case
        keys = np.arange(VOCABULARY)
        assert np.array_equal(table.lookup(keys), expected.lookup(keys)), case
        exported = np.concatenate([batch.lines for batch in table.export_batches(1000)])
        wanted = np.concatenate([batch.lines for batch in expected.export_batches(1000)])
        assert np.array_equal(exported, wanted), case
        statistics = table.statistics()
        assert statistics["disk_bytes"] > 0, case
        assert statistics["disk_lines_read"] > 0, case
    assert list(tmp_path.iterdir()) == []  # the files have no name


@pytest.mark.parametrize("policy", ["lfu", "lru"])
@pytest.mark.parametrize("window", [1, 8])
def test_prefetch_with_several_tables_shards_and_types_of_rows(window: int, policy: str) -> None:
    plain = [
        hotrow.TableConfig("a", 8, optimizer=hotrow.Adam(0.01), shards=3, dtype="bfloat16"),
        hotrow.TableConfig("b", 4, optimizer=hotrow.Adagrad(0.1), shards=2, hash_owner=True),
        hotrow.TableConfig("c", 1, optimizer=hotrow.SGD(0.1)),  # without a cache
    ]
    cache = hotrow.Cache(rows=700, policy=policy)  # type: ignore[arg-type]
    cached = [replace(table, cache=cache) for table in plain[:2]] + plain[2:]
    losses, layer = train_ahead(plain, 0)
    cached_losses, cached_layer = train_ahead(cached, window)
    assert cached_losses == losses
    for name, table in cached_layer.tables.items():
        assert table.digest() == layer.tables[name].digest()
        assert (table.statistics()["cache_prefetched"] > 0) == (name != "c")


@pytest.mark.parametrize("first", [0, 600])
@pytest.mark.parametrize("second", [0, 600, 3000])
def test_weights_are_loaded_into_a_table_with_another_cache(first: int, second: int) -> None:
    def table(rows: int) -> hotrow.TableConfig:
        cache = hotrow.Cache(rows=rows) if rows else None
        return hotrow.TableConfig("t", 4, optimizer=hotrow.Adam(0.01), cache=cache)

    _, trained = train_ahead([table(first)], 8 if first else 0)
    _, other = train_ahead([table(second)], 8 if second else 0)
    other.tables["t"].clear()
    store: dict[str, Any] = {}
    trained.save_own_variables(store)
    other.load_own_variables(store)
    assert other.tables["t"].digest() == trained.tables["t"].digest()
    assert other.tables["t"].statistics()["cache_steps"] == 0


def test_shards_and_types_of_rows_come_out_the_same() -> None:
    plain = hotrow.TableConfig(
        "t", 8, optimizer=hotrow.Adam(0.01), shards=3, dtype="bfloat16", state_dtype="float16"
    )
    losses, layer = train(plain, "step")
    for cache in (hotrow.Cache(rows=700), hotrow.Cache(rows=700, policy="lru")):
        cached_losses, cached_layer = train(replace(plain, cache=cache), "step")
        assert cached_losses == losses
        assert cached_layer.tables["t"].digest() == layer.tables["t"].digest()


def test_a_hit_counts_once_and_as_often_as_its_key_appeared() -> None:
    _, layer = train_ahead([hotrow.TableConfig("t", 4, cache=hotrow.Cache(rows=600))], 0)
    table = layer.tables["t"]
    table.clear()
    table.lookup(np.array([1, 2, 2, 3]), insert=True)
    before = table.statistics()
    table.lookup(np.array([9, 2, 2, 2, 1]), insert=True)
    after = table.statistics()
    names = ("cache_hits", "cache_hit_lookups", "cache_misses")
    assert [after[name] - before[name] for name in names] == [2, 4, 1]


def test_reading_does_not_change_what_is_cached() -> None:
    _, layer = train(hotrow.TableConfig("t", 8, cache=hotrow.Cache(rows=600)), "step")
    table = layer.tables["t"]
    before = table.statistics()
    keys = np.arange(-5, 3000)
    rows = table.lookup(keys)
    layer({"user": tf.constant(keys[:, None]), "item": tf.constant(keys[:, None])})
    after = table.statistics()
    assert after == before
    # What is in the cache is what a reader of rows sees.
    table.digest()
    np.testing.assert_array_equal(table.lookup(keys), rows)


def test_bytes_bound_the_memory_of_the_cache() -> None:
    config = hotrow.TableConfig("t", 16, optimizer=hotrow.Adagrad(0.1))
    _, layer = train(config, "step")
    for mebibytes in (1, 4):
        cache = hotrow.Cache(bytes=mebibytes << 20)
        _, cached = train(replace(config, cache=cache), "step")
        table = cached.tables["t"]
        # At most one set of each partition more, for they have equally many.
        assert table.bytes - layer.tables["t"].bytes <= (mebibytes << 20) + 32 * 16 * 156
        slots = table.statistics()["cache_slots"]
        assert slots * (16 * 4 * 2 + 28) >= 0.9 * (mebibytes << 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"Cache\(rows, bytes, ratio\)"),
        ({"rows": 5, "ratio": 0.5}, "exactly one"),
        ({"rows": 0}, "Cache.rows"),
        ({"rows": 1.5}, "Cache.rows"),
        ({"bytes": -1}, "Cache.bytes"),
        ({"ratio": 0.0}, "Cache.ratio"),
        ({"ratio": 1.5}, "Cache.ratio"),
        ({"rows": 5, "policy": "fifo"}, "Cache.policy"),
    ],
)
def test_a_wrong_cache_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        hotrow.Cache(**options)


def test_a_share_needs_a_vocabulary() -> None:
    with pytest.raises(InvalidArgumentError, match="vocabulary_size is None"):
        hotrow.TableConfig("t", 8, cache=hotrow.Cache(ratio=0.5))


def test_a_cache_survives_the_configuration_of_a_saved_model() -> None:
    table = hotrow.TableConfig("t", 8, cache=hotrow.Cache(bytes=1 << 20, policy="lru"))
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("user", table)])
    again = hotrow.DistributedEmbedding.from_config(layer.get_config())
    assert again.tables["t"].config == table
