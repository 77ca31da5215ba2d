"""Dense gradients summed over ranks that are threads."""

from __future__ import annotations

import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from traced import traced

import hotrow
from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.ops.dense_gradients import sum_over_ranks
from hotrow.ops.ranks import LONE, thread_ranks


@pytest.fixture(name="ranks", params=[2, 3], ids=lambda n: f"{n} ranks")
def _ranks(request):
    made = thread_ranks(request.param, 60.0)
    yield made
    for rank in made:
        rank.close()


def _on_ranks(ranks, body):
    """Returns what `body` returns for each rank, each in a thread of its own."""
    with ThreadPoolExecutor(len(ranks)) as threads:
        return [f.result() for f in [threads.submit(body, rank) for rank in ranks]]


def _gradients(rank, count=12):
    random = np.random.default_rng(rank)
    shapes = [
        (int(random_size), 3) for random_size in np.random.default_rng(7).integers(0, 90, count)
    ]
    return [(random.standard_normal(shape) ** 5).astype(np.float32) for shape in shapes]


def _wanted(count):
    total = _gradients(0)
    for rank in range(1, count):
        total = [a + b for a, b in zip(total, _gradients(rank), strict=True)]
    return total


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "in a tf.function"])
@pytest.mark.parametrize("bucket_bytes", [1, 1000, 1 << 20])
def test_sums_are_those_in_the_order_of_the_ranks_on_all(ranks, compiled, bucket_bytes):
    def body(rank):
        def step(gradients):
            return sum_over_ranks(gradients, rank, bucket_bytes=bucket_bytes)

        given = [tf.constant(g) for g in _gradients(rank.rank)]
        run = traced(step, given) if compiled else step
        return [[s.numpy() for s in run(given)] for _ in range(20)]

    for steps in _on_ranks(ranks, body):
        for sums in steps:
            for got, wanted in zip(sums, _wanted(len(ranks)), strict=True):
                assert got.shape == wanted.shape
                assert got.tobytes() == wanted.tobytes()


def test_variables_without_a_gradient_have_none_afterwards(ranks):
    one = tf.ones(3)
    for sums in _on_ranks(ranks, lambda rank: sum_over_ranks([None, one, None], rank)):
        assert sums[0] is None
        assert sums[2] is None
        np.testing.assert_array_equal(sums[1], np.full(3, len(ranks)))
    assert _on_ranks(ranks, lambda rank: sum_over_ranks([None], rank)) == [[None]] * len(ranks)


def test_a_gradient_without_elements_comes_first(ranks):
    """As of the kernel of a model that has no dense columns."""
    bias, kernel = tf.ones(1), tf.zeros([0, 1])
    for sums in _on_ranks(ranks, lambda rank: sum_over_ranks([bias, kernel], rank)):
        assert sums[0].numpy().tolist() == [len(ranks)]
        assert sums[1].shape == (0, 1)


def test_one_rank_gets_its_gradients_back():
    sparse = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([3]))
    gradients = [tf.ones(2), None, sparse]
    same = sum_over_ranks(gradients, LONE)
    assert all(a is b for a, b in zip(gradients, same, strict=True))


def test_sparse_gradients_and_other_types_are_refused_by_name(ranks):
    sparse = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([3]))
    with pytest.raises(InvalidArgumentError, match=r"^words/table: a sparse gradient"):
        sum_over_ranks([sparse], ranks[0], names=["words/table"])
    with pytest.raises(InvalidArgumentError, match=r"^gradient 1 of 2: type float16"):
        sum_over_ranks([None, tf.ones(2, tf.float16)], ranks[0])


def test_bytes_and_time_are_counted_as_dense(ranks):
    _on_ranks(ranks, lambda rank: sum_over_ranks([tf.ones(600)], rank)[0].numpy())
    counts = ranks[0].stage_counts()["dense"]
    assert counts["calls"] == 1
    assert counts["bytes_sent"] == counts["bytes_received"] == 4800 * (len(ranks) - 1) // len(ranks)
    assert counts["nanoseconds"] > 0


def test_a_rank_that_fails_is_reported_to_who_waits_for_sums(ranks):
    def body(rank):
        if rank.is_first:
            return rank.fail(DataLossError("the data is gone"))
        step = traced(lambda g: sum_over_ranks([g], rank), tf.ones(5))
        with pytest.raises(tf.errors.DataLossError, match="rank 0: the data is gone"):
            step(tf.ones(5))
        return None

    _on_ranks(ranks, body)


def test_gradients_of_a_model_start_in_the_order_of_the_backward_pass(ranks):
    model = tf.keras.Sequential([tf.keras.layers.Dense(8) for _ in range(4)])
    model.build((None, 8))

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        return sum_over_ranks(gradients, ranks[0], bucket_bytes=300)

    graph = tf.function(step).get_concrete_function(tf.TensorSpec([None, 8])).graph
    starts = [op for op in graph.get_operations() if op.type == "HotrowAllReduceStart"]
    assert [op.get_attr("N") for op in starts] == [2, 2, 2, 2]
    assert [int(op.get_attr("what").decode()[-1]) for op in starts] == [0, 1, 2, 3]
    for before, after in itertools.pairwise(starts):
        assert before in after.control_inputs


_ONE_THREAD = """
import threading
import tensorflow as tf

import hotrow
tf.config.threading.set_inter_op_parallelism_threads({inter_op})
tf.config.threading.set_intra_op_parallelism_threads(1)
from hotrow.ops.dense_gradients import sum_over_ranks
from hotrow.ops.ranks import thread_ranks

ranks = thread_ranks(3, 30.0)
tracing = threading.Lock()

def body(rank):
    @tf.function
    def step(x):
        gradients = [tf.sin(x * i) + tf.ones(i + 1) for i in range(20)]
        sums = sum_over_ranks(gradients, rank, bucket_bytes=64)
        return tf.add_n([tf.reduce_sum(s) for s in sums])
    with tracing:
        step.get_concrete_function(tf.constant(0.0))
    for repeat in range(100):
        last = step(tf.constant(0.0))
    assert last == 3 * 210, last

threads = [threading.Thread(target=body, args=(rank,)) for rank in ranks]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", ranks[0].stage_counts()["dense"]["calls"])
"""


@pytest.mark.parametrize(
    "inter_op", [1, pytest.param(4, marks=pytest.mark.slow)], ids=lambda n: f"{n} inter-op threads"
)
def test_waiting_for_sums_blocks_no_thread_that_starts_others(inter_op):
    result = subprocess.run(
        [sys.executable, "-c", _ONE_THREAD.format(inter_op=inter_op)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.startswith("done ")


def test_the_first_bucket_goes_before_the_tables_and_the_others_after_them(ranks):
    users = hotrow.TableConfig("users", 8, sharding="row")
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("user", users)], ranks=ranks[0])
    bottom, top = tf.keras.layers.Dense(8), tf.keras.layers.Dense(8)
    for dense in (bottom, top):
        dense.build((None, 8))

    def step(dense_input, keys):
        with tf.GradientTape() as tape:
            rows = layer({"user": keys}, training=True)["user"]
            loss = tf.reduce_sum(top(bottom(dense_input) * rows))
        weights = [*bottom.trainable_weights, *top.trainable_weights, layer.anchor.value]
        *gradients, commit_token = tape.gradient(loss, weights)
        return sum_over_ranks(gradients, ranks[0], bucket_bytes=300), commit_token

    given = (tf.TensorSpec([None, 8]), tf.TensorSpec([None], tf.int64))
    graph = tf.function(step).get_concrete_function(*given).graph
    operations = graph.get_operations()
    first, *others = [op for op in operations if op.type == "HotrowAllReduceStart"]
    (lookup,) = [op for op in operations if op.type == "HotrowLookup"]
    (backward,) = [op for op in operations if op.type == "HotrowBackward"]
    assert len(others) == 1
    assert lookup in first.control_inputs
    assert first in backward.control_inputs
    assert backward in others[0].control_inputs
    assert backward not in first.control_inputs
