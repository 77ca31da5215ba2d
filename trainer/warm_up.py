"""Fills the caches of a model's tables before training starts, from a sample of batches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from hotrow.config import RunConfig
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.data import Batch
from hotrow.trainer.epoch_stream import epoch_stream
from hotrow.trainer.models import Ranker


def warm_up(
    model: Ranker, config: RunConfig, position: Position, ranks: Ranks = LONE
) -> dict[str, int]:
    """Fills the caches with the keys of the next batches; returns how many rows were brought in.

    The sample is read separately, in file order, so the order of training does not change. Without
    a cache, or with `cache.warmup` 0, nothing is read. On several ranks all call it, and each reads
    its part of the batches.

    Args:
        model: the model of the tables; keys without a row are only counted.
        config: the run's configuration.
        position: where training starts.
        ranks: the ranks of the run.

    Raises:
        DataError: a line of the sample is malformed.
        OutOfRangeError: a key of the sample is outside its table's vocabulary.
    """
    cache = config.cache
    if cache.as_spec() is None or cache.warmup == 0:
        return {}
    stream: Iterable[Batch] = epoch_stream(config, ranks, position)
    sample = islice(stream, cache.warmup_batches)
    keys = ({name: keys.keys for name, keys in batch.sparse.items()} for batch in sample)
    return model.warm_up(keys, cache.warmup)
