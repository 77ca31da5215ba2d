"""Prefetching goes on while training does: a call does not wait for rows, nor for other ranks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.ops.ranks import thread_ranks
from hotrow.ops.table import Table

SLOTS, WINDOW, ROUNDS = 1 << 16, 60_000, 20


def test_a_call_returns_before_its_rows_are_in_the_cache():
    config = hotrow.TableConfig("t", 16, cache=hotrow.Cache(rows=SLOTS, policy="lru"))
    table = Table(config, seed=1)
    windows = [np.arange(WINDOW) + number * WINDOW for number in range(3)]
    for window in windows:
        table.lookup(window, insert=True)
    came_later = 0
    for number in range(ROUNDS):
        before = table.statistics()["cache_prefetched"]
        table.prefetch(windows[number % 3])
        at_once = table.statistics()["cache_prefetched"] - before
        table.wait_for_prefetch()
        in_the_end = table.statistics()["cache_prefetched"] - before
        came_later += at_once < in_the_end
    # A thread that brings rows in may be the first to run; not every time.
    assert came_later > 0


@pytest.mark.parametrize("sharding", ["row", "column", "replicated"])
def test_a_rank_that_prefetches_does_not_wait_for_the_others(sharding):
    called, failed, pooled = threading.Event(), [], {}

    def train(ranks):
        table = hotrow.TableConfig("t", 4, sharding=sharding, optimizer=hotrow.SGD(0.1))
        feature = hotrow.FeatureConfig("f", table)
        layer = hotrow.DistributedEmbedding(feature, update="backward", ranks=ranks)
        batch = {"f": tf.constant([1, 2, 3 + ranks.rank], tf.int64)}
        if ranks.rank == 1:
            assert called.wait(30), "rank 0 waits in prefetch for rank 1"
        layer.prefetch([batch])
        called.set()
        pooled[ranks.rank] = layer(batch, training=True)["f"].numpy()

    def run(ranks):
        try:
            with ranks:
                train(ranks)
        except BaseException as err:
            failed.append(err)

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in thread_ranks(2, 10.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    np.testing.assert_array_equal(pooled[0][:2], pooled[1][:2])
