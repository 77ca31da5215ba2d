"""The layer's prefetch and warm_up: which keys of which tables, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.errors import HotrowError, InvalidArgumentError, OutOfRangeError
from hotrow.ops import batch_keys
from hotrow.ops.ranks import Ranks, thread_ranks

SHARED = hotrow.TableConfig("shared", 4, cache=hotrow.Cache(rows=600))
PLAIN = hotrow.TableConfig("plain", 4)
FEATURES = [
    hotrow.FeatureConfig("user", SHARED),
    hotrow.FeatureConfig("item", PLAIN),
    hotrow.FeatureConfig("history", SHARED, "sum"),
]


@pytest.fixture
def layer() -> hotrow.DistributedEmbedding:
    return hotrow.DistributedEmbedding(FEATURES, seed=1)


def batch(user: Any, history: Any = (0,), item: Any = (0,)) -> dict[str, Any]:
    return {"user": user, "item": np.asarray(item), "history": np.asarray(history)}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_keys_of_a_table_come_batch_by_batch_and_feature_by_feature() -> None:
    history = tf.ragged.constant([[5], [], [6, 7]], dtype=tf.int64)
    sparse = tf.SparseTensor([[0, 1], [2, 0]], tf.constant([8, -9], tf.int64), [3, 2])
    batches = [
        {"user": ints(1, 2, 1), "item": ints(50), "history": history},
        {"user": tf.constant([[3], [4], [2**62]], tf.int64), "item": ints(), "history": sparse},
    ]
    keys = batch_keys.keys_in_order(FEATURES, batches)
    np.testing.assert_array_equal(keys["shared"], [1, 2, 1, 5, 6, 7, 3, 4, 2**62, 8, -9])
    np.testing.assert_array_equal(keys["plain"], [50])
    assert keys["shared"].dtype == np.int64


def test_strings_become_the_keys_of_the_layer() -> None:
    layer = hotrow.DistributedEmbedding(FEATURES, seed=1)
    values = np.array(["a", "b", "a"])
    layer({"user": values, "item": ints(1), "history": ints(1, 1, 1)}, training=True)
    for given in (values, tf.constant(values), values.astype(object)):
        keys = batch_keys.host_keys(FEATURES[0], given)
        assert len(np.unique(keys)) == 2
        assert layer.tables["shared"].contains(keys).all()


def test_the_keys_of_a_tensor_are_not_copied() -> None:
    array = ints(1, 2, 3)
    assert np.shares_memory(batch_keys.host_keys(FEATURES[0], array.reshape(3, 1)), array)
    tensor = tf.constant(array)
    assert np.shares_memory(batch_keys.host_keys(FEATURES[0], tensor), memoryview(tensor))


def test_counts_are_those_of_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    batches = [
        batch(rng.integers(0, 50, 100), history=rng.integers(0, 50, (100, 2))) for _ in range(9)
    ]
    expected = np.unique(
        np.concatenate([b[name].reshape(-1) for b in batches for name in ("user", "history")]),
        return_counts=True,
    )
    for merge_at in (1, 1 << 22):
        monkeypatch.setattr(batch_keys, "_MERGE", merge_at)
        keys, counts = batch_keys.count_keys(FEATURES, iter(batches))["shared"]
        np.testing.assert_array_equal(keys, expected[0])
        np.testing.assert_array_equal(counts, expected[1])
        assert counts.dtype == np.uint32


def test_prefetch_brings_the_rows_of_the_window_in(layer: hotrow.DistributedEmbedding) -> None:
    table = layer.tables["shared"]
    rng = np.random.default_rng(5)
    # More rows than the cache has: not all of them can be near.
    for keys in rng.permutation(6000).reshape(6, 1000):
        layer(batch(keys, history=keys, item=keys), training=True)
    before = table.statistics()
    batches = [batch(ints(*range(100 * i, 100 * i + 100)), history=ints(5)) for i in range(2)]
    layer.prefetch(batches)
    table.wait_for_prefetch()
    after = table.statistics()
    assert 100 < after["cache_prefetched"] - before["cache_prefetched"] <= 200
    for inputs in batches:
        layer(inputs, training=True)
    assert table.statistics()["cache_misses"] == after["cache_misses"]
    assert layer.tables["plain"].statistics()["cache_prefetched"] == 0


def test_warm_up_brings_the_most_frequent_rows_in(layer: hotrow.DistributedEmbedding) -> None:
    table = layer.tables["shared"]
    for keys in np.arange(6000).reshape(6, 1000):
        layer(batch(keys, history=keys, item=keys), training=True)
    frequent = np.arange(2000, 2100)
    sample = [batch(frequent, history=ints(i)) for i in range(5)]
    came_in = layer.warm_up(sample, share=0.5)
    assert came_in.keys() == {"shared"}
    assert 90 <= came_in["shared"] <= 105
    before = table.statistics()
    layer(batch(frequent, history=frequent), training=True)
    after = table.statistics()
    assert after["cache_hits"] - before["cache_hits"] >= 95


def test_a_warm_up_before_there_are_rows_counts_only(layer: hotrow.DistributedEmbedding) -> None:
    assert layer.warm_up([batch(ints(1, 2, 3))]) == {"shared": 0}
    assert layer.warm_up([]) == {"shared": 0}
    assert layer.tables["shared"].size == 0


def test_without_a_cache_nothing_happens_and_nothing_is_read() -> None:
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("item", PLAIN)])

    def unread() -> Any:
        raise AssertionError("the sample was read")
        yield

    assert layer.warm_up(unread()) == {}
    layer.prefetch([{"item": ints(1)}])
    layer.prefetch([])


@pytest.mark.parametrize("what", ["prefetch", "warm_up"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"users": ints(1)}, r"unknown feature 'users' \(did you mean 'user'\?\)"),
        ({"user": ints(1)}, "a batch of .* lacks item, history"),
        ([ints(1)], "is a list; must be a dictionary by feature"),
        (batch(np.array([1.5])), "feature 'user': keys of type float64 that are not exact"),
        (batch(np.array([1], np.uint64)), "feature 'user': keys of type uint64; must be int64"),
        (batch([[1], [2, 3]]), "feature 'user': keys are no array"),
    ],
)
def test_what_is_wrong_is_reported_by_name(
    layer: hotrow.DistributedEmbedding, what: str, given: Any, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        getattr(layer, what)([given])


def test_a_share_and_a_key_out_of_range_are_refused() -> None:
    table = hotrow.TableConfig("t", 4, 100, cache=hotrow.Cache(rows=600))
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("user", table)])
    for what in (layer.prefetch, layer.warm_up):
        with pytest.raises(OutOfRangeError, match="100"):
            what([{"user": ints(1, 100)}])
    with pytest.raises(InvalidArgumentError, match=r"warm-up of 1\.5"):
        layer.warm_up([{"user": ints(1)}], share=1.5)


@pytest.mark.parametrize("what", ["prefetch", "warm_up"])
def test_inside_of_a_graph_is_refused(layer: hotrow.DistributedEmbedding, what: str) -> None:
    @tf.function
    def step(keys: tf.Tensor) -> tf.Tensor:
        getattr(layer, what)([batch(keys)])
        return keys

    with pytest.raises(InvalidArgumentError, match=f"{what} inside of tf.function"):
        step(tf.constant([1], tf.int64))


@pytest.mark.parametrize("more", [0, 1])
def test_a_rank_that_prefetches_one_batch_more_ends_all_ranks(more: int) -> None:
    feature = hotrow.FeatureConfig("item", hotrow.TableConfig("plain", 4))
    messages = ["", ""]

    def run(rank: Ranks) -> None:
        layer = hotrow.DistributedEmbedding([feature], update="backward", ranks=rank)
        batches = [{"item": ints(rank.rank, 7)}, {"item": ints(3)}]
        try:
            layer.prefetch(batches if rank.rank == more else batches[:1])
            layer(batches[0], training=True)
            rank.all_reduce(np.ones(3, np.float32), "dense gradients")
        except HotrowError as err:
            messages[rank.rank] = str(err)
        finally:
            rank.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(2, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for message in messages:
        assert 'all_to_all of "prefetch of plain"' in message
        assert 'all_gather of "dense gradients"' in message


def test_weights_of_fewer_batches_are_refused_on_ranks() -> None:
    feature = hotrow.FeatureConfig("item", hotrow.TableConfig("plain", 4), "sum")
    first, _ = thread_ranks(2, 1.0)
    layer = hotrow.DistributedEmbedding([feature], ranks=first)
    with pytest.raises(InvalidArgumentError, match="weights of 1 batches, and 2 batches"):
        layer.prefetch([{"item": ints(1)}] * 2, [{}])
