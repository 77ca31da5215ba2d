"""Training steps of a layer on several ranks, threads of this process, and what they sent."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import hotrow
from hotrow.ops.planner import STAGES, ShardingPlan, Volume
from hotrow.ops.ranks import Ranks, thread_ranks

Ints = npt.NDArray[np.int64]
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of a feature in a global batch; see `hotrow.trainer.data.Keys`."""

    keys: Ints
    row_splits: Ints | None = None
    weights: npt.NDArray[np.float32] | None = None

    def part(self, first: int, last: int) -> tuple[Any, Any]:
        """Returns keys and weights of samples [first, last), as the layer takes them."""
        if self.row_splits is None:
            weights = None if self.weights is None else tf.constant(self.weights[first:last])
            return tf.constant(self.keys[first:last]), weights
        begin, end = self.row_splits[first], self.row_splits[last]
        splits = self.row_splits[first : last + 1] - begin

        def ragged(values: Any) -> Any:
            return tf.RaggedTensor.from_row_splits(values[begin:end], splits)

        return ragged(self.keys), None if self.weights is None else ragged(self.weights)


Batch = dict[str, Keys]
Counts = dict[str, dict[str, int]]


def split_as(
    features: Sequence[hotrow.FeatureConfig], plan: ShardingPlan
) -> list[hotrow.FeatureConfig]:
    """Returns the features with their tables split as a plan says."""
    schemes, owners = plan.schemes(), plan.owners()
    tables = {
        f.table.name: replace(
            f.table,
            sharding=schemes[f.table.name],
            owner=owners.get(f.table.name),
        )
        for f in features
    }
    return [replace(feature, table=tables[feature.table.name]) for feature in features]


def measure(
    features: Sequence[hotrow.FeatureConfig], batches: Sequence[Batch], size: int, ranks: int
) -> tuple[Volume, float]:
    """Trains a step with each batch; returns the bytes of the steps, and of the messages of sizes.

    Args:
        features: of the layer, their tables with the schemes to measure.
        batches: global ones.
        size: samples of a batch.
        ranks: N.
    """
    group = thread_ranks(ranks, TIMEOUT_SECONDS)
    counts: list[list[Counts]] = [[] for _ in group]
    failures: list[BaseException] = []

    def run(own: Ranks) -> None:
        try:
            counts[own.rank] = _train(features, batches, size, own)
        except BaseException as err:
            own.fail(err)
            failures.append(err)

    threads = [threading.Thread(target=run, args=(own,)) for own in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own in group:
        own.close()
    if failures:
        raise failures[0]

    def bytes_of(direction: str, *stages: str) -> npt.NDArray[np.float64]:
        so_far = [
            [[at.get(s, {}).get(f"bytes_{direction}", 0) for s in stages] for at in own]
            for own in counts
        ]
        return np.diff(np.array(so_far, np.float64), axis=1).transpose(1, 2, 0)

    moved = Volume(bytes_of("sent", *STAGES), bytes_of("received", *STAGES))
    return moved, float(bytes_of("sent", "sizes").mean())


def _train(
    features: Sequence[hotrow.FeatureConfig], batches: Sequence[Batch], size: int, ranks: Ranks
) -> list[Counts]:
    """Returns the counts of stages before the first step and after each."""
    layer = hotrow.DistributedEmbedding(features, update="backward", ranks=ranks)
    first, last = (size * r // ranks.size for r in (ranks.rank, ranks.rank + 1))
    counts = [ranks.stage_counts()]
    for batch in batches:
        parts = {f.name: batch[f.name].part(first, last) for f in features}
        weights = {name: w for name, (_, w) in parts.items() if w is not None}
        with tf.GradientTape() as tape:
            found = layer({name: keys for name, (keys, _) in parts.items()}, weights, training=True)
            flat = [getattr(rows, "flat_values", rows) for rows in found.values()]
            loss = tf.add_n([tf.reduce_sum(rows) for rows in flat])
        tape.gradient(loss, layer.trainable_variables)
        counts.append(ranks.stage_counts())
    return counts
