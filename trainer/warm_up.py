"""Fills the caches of a model's tables before training starts, from a sample that is counted."""

from __future__ import annotations

from hotrow.config import RunConfig
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.data import BatchStream, Part
from hotrow.trainer.models import Ranker


def warm_up(
    model: Ranker, config: RunConfig, start_batch: int, ranks: Ranks = LONE
) -> dict[str, int]:
    """Warms the caches up with the keys of the next batches; returns the rows that came in.

    The sample is a reading of its own, in the file's order: the order of training is not touched.
    Without a cache, or with `cache.warmup` 0, nothing is read. On several ranks all call it, and
    each reads its part of the batches.

    Args:
        model: its tables; rows that are there come in, the keys of others only count.
        config: the run's.
        start_batch: where in the epoch training starts.
        ranks: of the run.

    Raises:
        DataError: a line of the sample is malformed.
        OutOfRangeError: a key of the sample is outside of its table's vocabulary.
    """
    cache = config.cache
    if cache.as_spec() is None or cache.warmup == 0:
        return {}
    rows = (start_batch + cache.warmup_batches) * config.data.batch_size
    part = Part(ranks.rank, ranks.size)
    sample = BatchStream(config.data.train, config, start_batch=start_batch, limit=rows, part=part)
    keys = ({name: keys.keys for name, keys in batch.sparse.items()} for batch in sample)
    return model.warm_up(keys, cache.warmup)
