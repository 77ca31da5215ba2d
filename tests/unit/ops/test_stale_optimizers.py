"""Every optimizer with bounded staleness, against numpy: on a replica, and at the row's owner.

A rank alone uses a row of another one. Its replica takes each gradient at once. The owner takes the
sums that the rank sends it: after `most_behind + 1` updates, where half of the updates that the
owner has counted stand for s while these are fewer than 2 s.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf
from unit.ops.numpy_optimizers import NumpyTable

import hotrow
from hotrow.ops.ranks import thread_ranks

RANKS, OWNER, USER = 3, 0, 1
BOUND, STEPS, DIM = 5, 40, 4
KEY = RANKS * 7 + OWNER

OPTIMIZERS = [
    hotrow.SGD(0.1),
    hotrow.Momentum(0.1, momentum=0.8),
    hotrow.Adagrad(0.1),
    hotrow.RowwiseAdagrad(0.1),
    hotrow.Adam(0.05),
    hotrow.Adam(0.05, bias_correction="global"),
    hotrow.Ftrl(0.1, l1=0.01, l2_shrinkage=0.02),
]


def gradients():
    return np.random.default_rng(3).standard_normal((STEPS, DIM)).astype(np.float32)


def sums_sent():
    """Returns the sum that the owner receives in each step, or None."""
    sent, waiting, counted = [], [], 0
    for gradient in gradients().astype(np.float64):
        waiting.append(gradient)
        if len(waiting) <= min(BOUND, counted // 2):
            sent.append(None)
            continue
        sent.append(np.sum(waiting, axis=0))
        counted, waiting = counted + len(waiting), []
    return sent, (np.sum(waiting, axis=0) if waiting else None)


def train_on(ranks, optimizer, read, ended):
    table = hotrow.TableConfig(
        "t", DIM, optimizer=optimizer, staleness=hotrow.Staleness(BOUND, rows=64)
    )
    feature = hotrow.FeatureConfig("f", table)
    layer = hotrow.DistributedEmbedding(feature, update="backward", ranks=ranks, seed=5)
    keys = tf.constant([KEY] if ranks.rank == USER else [], tf.int64)
    for gradient in gradients():
        with tf.GradientTape() as tape:
            rows = layer({"f": keys}, training=True)["f"]
            loss = tf.reduce_sum(rows * gradient)
        (token,) = tape.gradient(loss, [layer.anchor])
        layer.anchor.assign(token)
        if ranks.rank == USER:
            read.append(rows.numpy()[0])
    before = layer.tables["t"].step
    layer.push_all()
    if ranks.rank == OWNER:
        (batch,) = layer.tables["t"].export_batches()
        assert batch.keys.tolist() == [KEY]
        ended.update(weights=batch.weights[0], count=int(batch.counts[0]), before=before)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
def test_replicas_and_owners_apply_the_optimizer(optimizer):
    read, ended, failed = [], {}, []

    def run(ranks):
        try:
            with ranks:
                train_on(ranks, optimizer, read, ended)
        except BaseException as err:
            failed.append(err)

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in thread_ranks(RANKS, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    here, there = (NumpyTable(optimizer, read[:1]) for _ in range(2))
    touched = np.array([True])
    sent, rest = sums_sent()
    for step, (gradient, total) in enumerate(zip(gradients(), sent, strict=True)):
        np.testing.assert_allclose(read[step], here.weights[0], rtol=2e-4, atol=2e-6, err_msg=step)
        here.apply(gradient[None], touched)
        if total is None:
            there.step += 1
        else:
            there.apply(total[None], touched)
    if rest is not None:
        there.apply(rest[None], touched)
    assert ended["before"] == STEPS
    np.testing.assert_allclose(ended["weights"], there.weights[0], rtol=2e-4, atol=2e-6)
    assert ended["count"] == STEPS
