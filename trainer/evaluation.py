"""Measures a model on a data file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.config import RunConfig
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.data import Batch, BatchStream, Part, Paths, encode
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.row_progress import RowProgress
from hotrow.trainer.epoch_stream import epoch_stream, left_out
from hotrow.trainer.metrics import BinaryMetrics, Quality
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.train_step import Forward, from_op_error

Floats = npt.NDArray[np.float32]
Scored = tuple[Floats, Floats, Floats | None]
"""Labels, logits and weights of rows, each [B]; no weights: each row counts 1."""


def predict_file(
    forward: Forward, config: RunConfig, path: Paths, ranks: Ranks = LONE
) -> Iterator[tuple[Floats, Floats]]:
    """Yields (labels [B], logits [B]) of the file's rows, in order; no table changes.

    Args:
        forward: from `make_forward`.
        config: the run's configuration, with the file's format and the batch size.
        path: a data file with labels, or several.
        ranks: each computes a part of each batch, and all get all results. A collective.

    Raises:
        NotFoundError, DataError: the file is missing or malformed.
    """
    for labels, logits, _ in _weighted_scores(forward, config, path, ranks):
        yield labels, logits


def evaluate_file(
    forward: Forward,
    config: RunConfig,
    path: Paths,
    ranks: Ranks = LONE,
    progress: RowProgress | None = None,
) -> Quality:
    """Returns AUC, logloss and calibration on a data file; see `predict_file`.

    Each row counts by its weight, if the configuration names a column of weights.

    Args:
        forward: from `make_forward`.
        config: the run's configuration.
        path: a data file with labels, or several.
        ranks: each computes a part of each batch; with `data.order: sharded` of its own part of the
            files. A collective.
        progress: counts scored rows.
    """
    metrics = BinaryMetrics()
    sharded = config.data.order == "sharded" and ranks.size > 1
    scores = _sharded_scores if sharded else _weighted_scores
    for labels, logits, weights in scores(forward, config, path, ranks):
        metrics.update(labels, logits, weights)
        if progress is not None:
            progress.add(len(labels))
    return metrics.result()


def _weighted_scores(
    forward: Forward, config: RunConfig, path: Paths, ranks: Ranks
) -> Iterator[Scored]:
    stream = BatchStream(path, config, part=Part(ranks.rank, ranks.size))
    with contextlib.closing(read_ahead(lambda: iter(stream))) as batches:
        for number, batch in enumerate(batches):
            assert batch.labels is not None  # BatchStream requires labels
            logits = _logits(forward, batch, f"batch {number + 1} of {path}")
            yield _of_all(ranks, batch.labels, logits, batch.weights)[0]


def _sharded_scores(
    forward: Forward, config: RunConfig, path: Paths, ranks: Ranks
) -> Iterator[Scored]:
    """Yields the scores of all rows; each rank reads its own, so they come in another order."""
    stream = epoch_stream(config, ranks, paths=path)
    with contextlib.closing(read_ahead(lambda: iter(stream))) as batches:
        for number, (batch, after) in enumerate(pairwise(batches)):
            assert batch.labels is not None  # streams require labels
            logits = _logits(forward, batch, f"batch {number + 1} of {path}")
            scored, rows_left = _of_all(ranks, batch.labels, logits, batch.weights, after.size)
            yield scored
            if not rows_left:
                break
    left_out(stream, config, ranks, path)


def predict_rows(forward: Forward, config: RunConfig, rows: RawBatch) -> Floats:
    """Returns the probabilities [B] of rows that were read with the run's features.

    Raises:
        HotrowError: the model cannot run on these rows.
    """
    logits = _logits(forward, encode(rows, config.features), "scoring rows")
    scores: Floats = tf.sigmoid(logits).numpy()
    return scores


def _logits(forward: Forward, batch: Batch, where: str) -> Floats:
    try:
        logits: Floats = forward(model_inputs(batch)).numpy()
    except tf.errors.OpError as err:
        raise from_op_error(err, where) from err
    return logits


def _of_all(
    ranks: Ranks, labels: Floats, logits: Floats, weights: Floats | None, rows_left: int = 0
) -> tuple[Scored, float]:
    """Returns the scores of a batch on all ranks, and the sum of their `rows_left`."""
    if ranks.size == 1:
        return (labels, logits, weights), rows_left
    own = [labels, logits] if weights is None else [labels, logits, weights]
    sent = np.concatenate([*own, np.array([rows_left], np.float32)])
    parts = ranks.all_gather(sent, "scores of a batch")
    split = [np.split(part[:-1], len(own)) for part in parts]
    labels, logits, *more = (np.concatenate(arrays) for arrays in zip(*split, strict=True))
    left = float(sum(part[-1] for part in parts))
    return (labels, logits, more[0] if more else None), left
