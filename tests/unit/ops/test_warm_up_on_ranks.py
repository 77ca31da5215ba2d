"""Caches of tables that are split over ranks, filled from a sample that each rank has a part of."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hotrow
from hotrow.ops.ranks import Ranks, thread_ranks

ROWS, SLOTS, HOT = 8000, 1024, 400


def layer_on(ranks: Ranks, sharding: str) -> hotrow.DistributedEmbedding:
    table = hotrow.TableConfig(
        "t", 4, cache=hotrow.Cache(SLOTS), sharding=sharding, optimizer=hotrow.SGD(0.1)
    )
    return hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig("f", table)], update="backward", ranks=ranks
    )


def step(layer: hotrow.DistributedEmbedding, keys: Any) -> None:
    with tf.GradientTape() as tape:
        rows = layer({"f": tf.constant(keys)}, training=True)
        loss = tf.reduce_sum(rows["f"])
    (gradient,) = tape.gradient(loss, [layer.anchor])
    layer.anchor.assign(gradient)


def warm_and_step(ranks: Ranks, sharding: str) -> tuple[int, int]:
    """Returns how many rows came in, and how many the step after it missed."""
    layer = layer_on(ranks, sharding)
    for first in range(0, ROWS, 500):  # the hot ones first, so they are evicted
        step(layer, np.arange(first, first + 500))
    # Each rank knows half of the hot keys alone, and some that have no row.
    own = np.arange(HOT // 2) + ranks.rank * HOT // 2
    sample = [np.repeat(own, 3), np.arange(ROWS + 100, ROWS + 150)]
    came_in = layer.warm_up([{"f": keys} for keys in sample], 0.7)["t"]
    before = layer.tables["t"].statistics()["cache_misses"]
    step(layer, np.arange(HOT))
    return came_in, layer.tables["t"].statistics()["cache_misses"] - before


@pytest.mark.parametrize("sharding", ["row", "replicated"])
def test_ranks_fill_their_caches_with_what_all_of_them_counted(sharding: str) -> None:
    counts: dict[int, tuple[int, int]] = {}

    def run(ranks: Ranks) -> None:
        with ranks:
            counts[ranks.rank] = warm_and_step(ranks, sharding)

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in thread_ranks(2, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = HOT // 2 if sharding == "row" else HOT
    assert sorted(counts) == [0, 1]
    for came_in, missed in counts.values():
        assert 0.9 * expected <= came_in <= expected
        assert missed == 0
