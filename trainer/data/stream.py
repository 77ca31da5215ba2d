"""`BatchStream`: the batches of one epoch, in file order or shuffled, from any batch on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.arrow_rows import cut_rows, join_rows, number_of_rows
from hotrow.trainer.data.batch import Batch, Ints
from hotrow.trainer.data.batch_rows import cut_batch, join_batches, take_rows
from hotrow.trainer.data.data_files import DataFiles, Paths
from hotrow.trainer.data.encode import encode
from hotrow.trainer.data.malformed import Malformed
from hotrow.trainer.data.part import WHOLE, Part
from hotrow.trainer.data.parted import part_in_order, part_of_shuffled
from hotrow.trainer.data.pass_check import PassCheck
from hotrow.trainer.data.regroup import regroup
from hotrow.trainer.data.shards import Shard


class BatchStream:
    """Encoded batches of a fixed number of rows from a labelled file, or several.

    Shuffling works on windows of `config.train.shuffle_buffer` consecutive rows, each permuted by
    (seed, epoch, number of the window).  A file that fits one window is thereby mixed as a whole;
    a longer one keeps its rough order.  Batch `i` depends only on the file, the configuration,
    seed and epoch. So a resumed run gets the batches that it would have seen, by `start_batch`.

    One window of encoded rows is in memory, and a second one while it is read.

    With a part, the batches are the same, but only the part's rows of each are encoded and yielded;
    the window then holds the rows in their file form.
    """

    def __init__(
        self,
        path: Paths,
        config: RunConfig,
        shuffle_seed: int | None = None,
        start_batch: int = 0,
        *,
        epoch: int = 0,
        batch_size: int | None = None,
        drop_last: bool = False,
        limit: int | None = None,
        part: Part = WHOLE,
        shard: Shard | None = None,
    ) -> None:
        """Opens the file.

        Args:
            path: a data file with labels, or several, which are read one after the other.
            config: its sections data, features and train are used.
            shuffle_seed: seed of the order, at least 0; None keeps the file's order.
            start_batch: the first batch to yield; earlier ones are counted only (`DataFile.rows`).
            epoch: at least 0; another epoch has another order.
            batch_size: rows of a batch; None takes `config.data.batch_size`.
            drop_last: skip a last batch with fewer rows.
            limit: read only this many rows of the file; None reads all.
            part: the rows of each batch to yield; these may be none.
            shard: read only these parts of the files; then the order also depends on its number.

        Raises:
            InvalidArgumentError: an argument is out of its range, or a column is not in the file.
            NotFoundError, DataError: as `open_data`.
        """
        rows = config.data.batch_size if batch_size is None else batch_size
        for name, value, least in (
            ("batch_size", rows, 1),
            ("start_batch", start_batch, 0),
            ("epoch", epoch, 0),
            ("shuffle_seed", shuffle_seed, 0),
        ):
            if value is not None and value < least:
                raise InvalidArgumentError(f"{name} is {value}; it must be at least {least}")
        pieces = None if shard is None else shard.pieces
        self._file = DataFiles(path, config.data, config.features, pieces)
        self._seeds = [] if shard is None else [shard.number]
        self._features = config.features
        self._window_rows = config.train.shuffle_buffer
        self._batch_size = rows
        self._shuffle_seed = shuffle_seed
        self._start_batch = start_batch
        self._epoch = epoch
        self._drop_last = drop_last
        self._limit = limit
        self._part = part

    @property
    def malformed(self) -> Malformed:
        """The lines skipped so far by the newest iteration."""
        return self._file.malformed

    @property
    def passed(self) -> PassCheck:
        """The rows and positive labels read so far by the newest iteration."""
        return self._file.passed

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches from `start_batch` on; every call starts over.

        Raises:
            DataError: as `DataFile.record_batches`.
        """
        skip = self._start_batch * self._batch_size
        if self._part.size > 1:
            batches = self._parts(skip)
        else:
            batches = regroup(
                self.rows(skip), self._batch_size, size=_size, cut=cut_batch, join=join_batches
            )
        for batch in batches:
            if batch.global_size == self._batch_size or not self._drop_last:
                yield batch

    def rows(self, skip: int) -> Iterator[Batch]:
        """Yields all rows in their order, in batches of any size, without the first `skip` rows.

        Raises:
            DataError: as `DataFile.record_batches`.
        """
        return self._in_order(skip) if self._shuffle_seed is None else self._shuffled(skip)

    def _parts(self, skip: int) -> Iterator[Batch]:
        """Yields the part of each batch, without the first `skip` rows of the order."""
        if self._shuffle_seed is None:
            return part_in_order(self._raw_rows(skip), self._batch_size, self._part, self._encode)
        return part_of_shuffled(self._raw_windows(skip), self._batch_size, self._part, self._encode)

    def _raw_rows(self, skip: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the file in pieces, without the first `skip`."""
        if self._limit is None:
            yield from self._file.record_batches(skip)
            return
        limit = self._limit - skip
        if limit <= 0:
            return
        for batch in self._file.record_batches(skip):
            yield batch.slice(0, limit)
            limit -= batch.num_rows
            if limit <= 0:
                return

    def _encode(self, rows: pa.RecordBatch) -> Batch:
        return encode(self._file.to_raw(rows), self._features)

    def _in_order(self, skip: int) -> Iterator[Batch]:
        """Yields the encoded rows of the file in pieces, without the first `skip`."""
        return map(self._encode, self._raw_rows(skip))

    def _shuffled(self, skip: int) -> Iterator[Batch]:
        """Yields the rows window by window, permuted, without the first `skip` of that order."""
        number, skip = divmod(skip, self._window_rows)
        windows = regroup(
            self._in_order(number * self._window_rows),
            self._window_rows,
            size=_size,
            cut=cut_batch,
            join=join_batches,
        )
        for window in windows:
            permutation = self._permutation(number, window.size)
            for start in range(skip, window.size, self._batch_size):
                yield take_rows(window, permutation[start : start + self._batch_size])
            number, skip = number + 1, 0

    def _raw_windows(self, skip: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """Yields each window and its permutation, the first without `skip` of its rows."""
        number, skip = divmod(skip, self._window_rows)
        windows = regroup(
            self._raw_rows(number * self._window_rows),
            self._window_rows,
            size=number_of_rows,
            cut=cut_rows,
            join=join_rows,
        )
        for window in windows:
            yield window, self._permutation(number, window.num_rows)[skip:]
            number, skip = number + 1, 0

    def _permutation(self, window: int, rows: int) -> Ints:
        seeds = [self._shuffle_seed or 0, self._epoch, window, *self._seeds]
        return np.random.default_rng(seeds).permutation(rows)


def _size(batch: Batch) -> int:
    return batch.size
