"""One rank's rows of each batch, selected before they are encoded.

The batches are the same as in one process. `W` rows of a window, `B` of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hotrow.trainer.data.arrow_rows import cut_rows, join_rows, number_of_rows
from hotrow.trainer.data.batch import Batch, Ints
from hotrow.trainer.data.batch_rows import cut_batch, take_rows
from hotrow.trainer.data.part import Part
from hotrow.trainer.data.regroup import regroup

Encode = Callable[[pa.RecordBatch], Batch]


def part_in_order(
    rows: Iterable[pa.RecordBatch], batch_size: int, part: Part, encode: Encode
) -> Iterator[Batch]:
    """Yields the part of each batch of rows in file order.

    Args:
        rows: the file's rows, in pieces of any size.
        batch_size: B.
        part: which rows of a batch.
        encode: makes a batch of rows; called with the rows of the part only.
    """
    batches = regroup(rows, batch_size, size=number_of_rows, cut=cut_rows, join=join_rows)
    for batch in batches:
        yield _part_of(batch, part, encode)


def part_of_shuffled(
    windows: Iterable[tuple[pa.RecordBatch, Ints]], batch_size: int, part: Part, encode: Encode
) -> Iterator[Batch]:
    """Yields the part of each batch of rows in a given order.

    Args:
        windows: consecutive rows of the file, and the order of those to take, int64 [W] or fewer. A
            batch may begin in one window and end in another.
        batch_size: B.
        part: which rows of a batch.
        encode: makes a batch of rows; called with the rows of the part only.
    """
    begun: list[pa.RecordBatch] = []  # of a batch that continues in the next window
    begun_rows = 0
    for window, order in windows:
        missing = (batch_size - begun_rows) % batch_size
        if missing:
            begun.append(window.take(pa.array(order[:missing])))
            begun_rows += begun[-1].num_rows
            if begun_rows < batch_size:
                continue
            yield _part_of(join_rows(begun), part, encode)
        whole = (len(order) - missing) // batch_size
        stop = missing + whole * batch_size
        yield from _parts_of_window(window, order[missing:stop], batch_size, part, encode)
        begun, begun_rows = [], len(order) - stop
        if begun_rows:
            begun = [window.take(pa.array(order[stop:]))]
    if begun:
        yield _part_of(join_rows(begun), part, encode)


def _part_of(batch: pa.RecordBatch, part: Part, encode: Encode) -> Batch:
    rows = part.of(batch.num_rows)
    own = encode(batch.slice(rows.start, rows.stop - rows.start))
    return replace(own, global_rows=batch.num_rows)


def _parts_of_window(
    window: pa.RecordBatch, order: Ints, batch_size: int, part: Part, encode: Encode
) -> Iterator[Batch]:
    """Yields the part of each batch that lies entirely in a window."""
    rows = part.of(batch_size)
    own = order.reshape(-1, batch_size)[:, rows].reshape(-1)
    if not len(order):
        return
    # Texts are read in memory order; keys and numbers are cheap to reorder afterwards.
    in_file = np.sort(own)
    encoded = take_rows(
        encode(window.take(pa.array(in_file))), np.searchsorted(in_file, own).astype(np.int64)
    )
    width = rows.stop - rows.start
    for number in range(len(order) // batch_size):
        batch = cut_batch(encoded, number * width, (number + 1) * width)
        yield replace(batch, global_rows=batch_size)
