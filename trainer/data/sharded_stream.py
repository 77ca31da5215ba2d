"""`ShardedStream`: the batches of one epoch on a rank that reads its own part of the files.

W ranks, B rows of the batch of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from hotrow.config import RunConfig
from hotrow.trainer.data.batch import Batch
from hotrow.trainer.data.batch_rows import cut_batch, join_batches
from hotrow.trainer.data.data_files import Paths
from hotrow.trainer.data.malformed import Malformed, all_malformed
from hotrow.trainer.data.part import Part
from hotrow.trainer.data.regroup import regroup
from hotrow.trainer.data.shards import Shard
from hotrow.trainer.data.stream import BatchStream

Leg = tuple[int, int]
"""A number of ranks, and the number of batches of the epoch that they read."""


class ShardedStream:
    """One rank's rows of each batch, from its own shard of the files.

    A rank yields as many rows of each batch as `Part` gives it, in the order of its shard; the last
    batch may have fewer. On several ranks, batches without rows follow, without end: shards have
    more or fewer rows, and each rank takes part in the steps of the others.

    If other numbers of ranks read the first batches of the epoch, this one reads what they left:
    rank r reads the rests of ranks r, r + W, ... one after the other. If there are more ranks than
    rests, those beyond have no rows, and the others have their share of a batch.
    """

    def __init__(
        self,
        paths: Paths,
        config: RunConfig,
        shards: Sequence[Shard],
        part: Part,
        shuffle_seed: int | None = None,
        start_batch: int = 0,
        *,
        epoch: int = 0,
        legs: Sequence[Leg] = (),
    ) -> None:
        """Opens nothing yet.

        Args:
            paths: the data files.
            config: as for `BatchStream`; B is `config.data.batch_size`, at least W.
            shards: the shards of the ranks that began the epoch.
            part: this rank and W.
            shuffle_seed: as for `BatchStream`.
            start_batch: batches of the epoch that W ranks have read, after those of `legs`.
            epoch: at least 0.
            legs: other numbers of ranks that read the epoch so far, the first one first.
        """
        self._paths = paths
        self._config = config
        self._shards = shards
        self._part = part
        self._seed = shuffle_seed
        self._start_batch = start_batch
        self._epoch = epoch
        self._legs = legs
        # Ranks with rows: of each leg, and now.
        self._counts = list(accumulate([*(ranks for ranks, _ in legs), part.size], min))
        self._read: list[BatchStream] = []

    @property
    def is_whole(self) -> bool:
        """Whether the batches are those of a whole epoch."""
        return not self._legs and not self._start_batch

    @property
    def malformed(self) -> Malformed:
        """The lines that this rank skipped so far."""
        return all_malformed([stream.malformed for stream in self._read])

    @property
    def rows(self) -> int:
        """The number of rows that this rank read so far."""
        return sum(stream.passed.rows for stream in self._read)

    @property
    def positives(self) -> int:
        """How many of these have label 1."""
        return sum(stream.passed.positives for stream in self._read)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches from `start_batch` on; every call starts over.

        Raises:
            NotFoundError, InvalidArgumentError, DataError: as `BatchStream`.
        """
        self._read = []
        last = None
        for last in self._own():
            yield last
        if self._part.size == 1:
            return
        if last is None:
            last = next(iter(BatchStream(self._paths, self._config, batch_size=1, limit=1)))
        empty = cut_batch(last, 0, 0)
        while True:
            yield empty

    def _own(self) -> Iterator[Batch]:
        """Yields this rank's batches that have rows."""
        level, rank = len(self._legs), self._part.rank
        if rank >= self._counts[level]:
            return iter(())
        width = self._width(level, rank)
        rows = self._rows(level, rank, self._start_batch * width)
        return regroup(rows, width, size=_size, cut=cut_batch, join=join_batches)

    def _width(self, level: int, rank: int) -> int:
        """Returns how many rows of a batch a rank has in a leg; that after the last one is now."""
        return Part(rank, self._counts[level]).rows_of(self._config.data.batch_size)

    def _rows(self, level: int, rank: int, skip: int) -> Iterator[Batch]:
        """Yields the rows that a rank had from the beginning of a leg on, without `skip`."""
        if level == 0:
            yield from self._shard(rank).rows(skip)
            return
        before = level - 1
        done = self._legs[before][1]
        for source in range(rank, self._counts[before], self._counts[level]):
            for rows in self._rows(before, source, done * self._width(before, source)):
                start = min(skip, rows.size)
                skip -= start
                if start < rows.size:
                    yield cut_batch(rows, start, rows.size)

    def _shard(self, number: int) -> BatchStream:
        stream = BatchStream(
            self._paths,
            self._config,
            self._seed,
            epoch=self._epoch,
            shard=self._shards[number],
        )
        self._read.append(stream)
        return stream


def _size(batch: Batch) -> int:
    return batch.size
