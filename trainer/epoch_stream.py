"""The rows of an epoch on one rank, in the order that `data.order` sets."""

from __future__ import annotations

import hashlib

from hotrow.config import RunConfig
from hotrow.errors import FailedPreconditionError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import agreed, gathered
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.data import BatchStream, Malformed, Part, Paths, each_path
from hotrow.trainer.data.malformed import all_malformed
from hotrow.trainer.data.pass_check import PassCheck
from hotrow.trainer.data.sharded_stream import ShardedStream
from hotrow.trainer.data.shards import Shard, as_text, shards_of

EpochStream = BatchStream | ShardedStream


def epoch_stream(
    config: RunConfig,
    ranks: Ranks,
    position: Position = Position(),  # noqa: B008 (frozen)
    *,
    paths: Paths | None = None,
    shuffle: bool = False,
) -> EpochStream:
    """Returns the batches of an epoch from a position on. A collective if ranks read shards.

    One process reads whole files with either order.

    Args:
        config: the run's configuration.
        ranks: all of them call this.
        position: the epoch, and the batches of it that were read already.
        paths: the files; None: the training files.
        shuffle: in the order of training; otherwise in that of the files.

    Raises:
        NotFoundError, InvalidArgumentError, DataError: as `BatchStream`.
        FailedPreconditionError: ranks find other files.
    """
    paths = config.data.train if paths is None else paths
    seed = config.seed if shuffle else None
    part = Part(ranks.rank, ranks.size)
    if not position.legs and (config.data.order == "exact" or ranks.size == 1):
        return BatchStream(paths, config, seed, position.batch, epoch=position.epoch, part=part)
    began = position.legs[0][0] if position.legs else ranks.size
    return ShardedStream(
        paths,
        config,
        _agreed_shards(paths, began, ranks),
        part,
        seed,
        position.batch_of_leg,
        epoch=position.epoch,
        legs=position.legs,
    )


def left_out(
    stream: EpochStream, config: RunConfig, ranks: Ranks, paths: Paths | None = None
) -> Malformed:
    """Returns the malformed lines of an epoch that was read to its end, over all ranks.

    A collective if ranks read shards. Then it also judges the epoch, as `DataFile.record_batches`
    does in one process.

    Args:
        stream: from `epoch_stream`.
        config: as there.
        ranks: as there.
        paths: as there.

    Raises:
        DataError: the whole epoch had no row on any rank, or no label was `data.positive`.
    """
    if isinstance(stream, BatchStream):
        return stream.malformed
    own = stream.malformed
    facts = [
        stream.rows,
        stream.positives,
        [own.count, own.first_line, own.path, own.reason, own.unit],
    ]
    of_all = gathered(ranks, "end of the epoch", facts)
    malformed = all_malformed([Malformed(*found) for *_, found in of_all])
    if stream.is_whole:
        check = PassCheck(each_path(config.data.train if paths is None else paths), config.data)
        check.rows, check.positives = (sum(one[i] for one in of_all) for i in (0, 1))
        check.end(malformed)
    return malformed


def _agreed_shards(paths: Paths, count: int, ranks: Ranks) -> list[Shard]:
    what = "shards of the data files"
    shards = agreed(ranks, what, lambda: shards_of(each_path(paths), count))
    own = hashlib.sha256(as_text(shards).encode()).hexdigest()
    of_all = gathered(ranks, what, own)
    for rank, other in enumerate(of_all):
        if other != of_all[0]:
            error = FailedPreconditionError(
                f"the ranks read different files: those of rank {rank} have other names, sizes or "
                "row groups than those of rank 0; give all ranks the same files"
            )
            error.on_all_ranks = True
            raise error
    return shards
