"""Streaming AUC, logloss and calibration of binary predictions, in numpy.

`labels`: [N], 0 or 1. `logits`: [N], log-odds; the probability is 1 / (1 + exp(-logit)). `weights`:
[N], at least 0, the weight of each row; None: each weighs 1. All rows of a stream have weights, or
none has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError, InvalidArgumentError

Floats = npt.NDArray[np.floating]

EXACT_ROWS = 1_000_000
"""Up to so many rows an AUC is exact by default."""
BINS = 2**20
"""Bins of scores beyond that, by default."""
_HISTOGRAM_LIMIT = 32.0  # logits beyond +-32 (probability 1e-14) share the outermost bins
_PROBABILITY_FLOOR = float(np.finfo(np.float32).eps)  # as scikit-learn clips float32 scores


def auc_from_counts(positives: Floats, negatives: Floats) -> float:
    """Returns the area under the ROC curve of bins in rising order of score.

    Args:
        positives: [K] number of positive rows in each bin.
        negatives: [K] number of negative rows in each bin. Rows of one bin count as ties.

    Returns:
        The probability that a positive row scores above a negative one, ties counting half;
        NaN unless both kinds are there.
    """
    total = float(positives.sum()) * float(negatives.sum())
    if total == 0:
        return float("nan")
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + 0.5 * negatives)) / total)


class StreamingAuc:
    """AUC of a stream of rows with bounded memory.

    Exact (ties count half, as in scikit-learn) up to `exact_rows` rows. Beyond, scores fall into
    equal bins of the logit over [-32, 32]; of 2**20, each is 6e-5 wide. Two rows of different label
    in one bin then count as a tie, so the result is off by at most `error_bound()`, which is about
    1e-5 for scores spread over a few units of logit.
    """

    def __init__(self, exact_rows: int = EXACT_ROWS, bins: int = BINS) -> None:
        """Starts empty.

        Args:
            exact_rows: rows kept one by one (9 bytes each) before the histogram takes over.
            bins: of the histogram, 16 bytes each; the error grows as they become fewer.
        """
        self._exact_rows = exact_rows
        self._bins = bins
        self._logits: list[npt.NDArray[np.float64]] = []
        self._labels: list[npt.NDArray[np.bool_]] = []
        self._weights: list[npt.NDArray[np.float64]] = []  # none: each row counts 1
        self._kept = 0
        self._histogram: npt.NDArray[np.float64] | None = None  # [2, bins]: negative, positive

    def update(self, labels: Floats, logits: Floats, weights: Floats | None = None) -> None:
        """Adds rows. Logits may be infinite, but not NaN."""
        positive = np.asarray(labels) > 0.5
        scores = np.asarray(logits, np.float64)
        if self._histogram is None and self._kept + len(scores) > self._exact_rows:
            self._histogram = np.zeros((2, self._bins))
            kept_weights: Sequence[npt.NDArray[np.float64] | None] = self._weights or [
                None for _ in self._labels
            ]
            for kept in zip(self._labels, self._logits, kept_weights, strict=True):
                self._count(*kept)
            self._labels, self._logits, self._weights = [], [], []
        if self._histogram is None:
            self._labels.append(positive)
            self._logits.append(scores)
            if weights is not None:
                self._weights.append(np.asarray(weights, np.float64))
            self._kept += len(scores)
        else:
            self._count(positive, scores, weights)

    def result(self) -> float:
        """Returns the AUC so far; NaN unless both labels have occurred."""
        negatives, positives = self._counts()
        return auc_from_counts(positives, negatives)

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the full state for `set_state`: rows kept one by one, or filled bins."""
        if self._histogram is None:
            if self._logits:
                self._logits = [np.concatenate(self._logits)]
                self._labels = [np.concatenate(self._labels)]
            if self._weights:
                self._weights = [np.concatenate(self._weights)]
            return {
                **({"weights": self._weights[0]} if self._weights else {}),
                "logits": self._logits[0] if self._logits else np.zeros(0),
                "labels": self._labels[0] if self._labels else np.zeros(0, np.bool_),
            }
        bins = np.flatnonzero(self._histogram)
        return {"bins": bins.astype(np.int64), "counts": self._histogram.reshape(-1)[bins]}

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state` returned, with the same arguments of `__init__`.

        Raises:
            DataLossError: `state` is not such a state; nothing has changed.
        """
        pair = ("bins", "counts") if "bins" in state else ("logits", "labels")
        length = state[pair[0]].size if pair[0] in state else 0
        arrays = [_array_of(state, name, length) for name in pair]
        weights = None
        if "weights" in state:
            weights = _array_of(state, "weights", length)
        if "bins" in state and not np.isin(arrays[0], np.arange(2 * self._bins)).all():
            raise DataLossError("the state of the metrics is damaged: a bin is out of range")
        self._logits, self._labels, self._weights, self._histogram = [], [], [], None
        if "bins" in state:
            self._histogram = np.zeros((2, self._bins))
            self._histogram.reshape(-1)[state["bins"]] = state["counts"]
        elif len(state["logits"]):
            self._logits, self._labels = [state["logits"]], [state["labels"]]
            self._weights = [] if weights is None else [state["weights"]]
        self._kept = sum(map(len, self._logits))

    def error_bound(self) -> float:
        """Returns the largest error of `result`: 0 while exact, else half the tied pairs."""
        if self._histogram is None:
            return 0.0
        negatives, positives = self._histogram
        total = float(negatives.sum() * positives.sum())
        return float(0.5 * np.sum(negatives * positives) / total) if total else 0.0

    def _counts(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        if self._histogram is not None:
            return self._histogram[0], self._histogram[1]
        if not self._logits:
            return np.zeros(0), np.zeros(0)
        scores, positive = np.concatenate(self._logits), np.concatenate(self._labels)
        _, group = np.unique(scores, return_inverse=True)
        weights = np.concatenate(self._weights) if self._weights else np.ones(len(scores))
        bins = int(group.max()) + 1 if len(group) else 0
        counts = [np.zeros(bins), np.zeros(bins)]
        for label, count in zip((False, True), counts, strict=True):
            rows = positive == label
            count += np.bincount(group[rows], weights[rows], minlength=bins)
        return counts[0], counts[1]

    def _count(
        self,
        positive: npt.NDArray[np.bool_],
        scores: npt.NDArray[np.float64],
        weights: Floats | None,
    ) -> None:
        assert self._histogram is not None
        clipped = np.clip(scores, -_HISTOGRAM_LIMIT, _HISTOGRAM_LIMIT)
        position = (clipped + _HISTOGRAM_LIMIT) * (self._bins / (2 * _HISTOGRAM_LIMIT))
        bins = np.minimum(position.astype(np.int64), self._bins - 1)
        counted = 1.0 if weights is None else np.asarray(weights, np.float64)
        np.add.at(self._histogram, (positive.astype(np.int64), bins), counted)


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of predictions over some rows.

    Attributes:
        rows: number of rows.
        auc: area under the ROC curve; NaN unless both labels occur.
        logloss: mean cross-entropy in nats; NaN for no rows.
        calibration: sum of predicted probabilities over number of positives; NaN without any.
        label_mean: share of positives; NaN for no rows.

    Where rows have weights, all metrics but `rows` are weighted.
    """

    rows: int
    auc: float
    logloss: float
    calibration: float
    label_mean: float

    def as_dict(self) -> dict[str, float]:
        """Returns the metrics by name."""
        return asdict(self)


class BinaryMetrics:
    """Collects AUC, logloss and calibration of a stream of rows."""

    def __init__(self, exact_rows: int = EXACT_ROWS, bins: int = BINS) -> None:
        """Starts empty; see `StreamingAuc` for the arguments."""
        self._auc = StreamingAuc(exact_rows, bins)
        self._rows = 0
        self._weight: float | None = None  # of all rows; None: each counts 1
        self._loss = 0.0
        self._predicted = 0.0
        self._positives = 0.0

    def update(self, labels: Floats, logits: Floats, weights: Floats | None = None) -> None:
        """Adds rows with their logits.

        Raises:
            InvalidArgumentError: the lengths differ, a label is neither 0 nor 1, or a logit is
                NaN.
        """
        y, z = np.asarray(labels, np.float64), np.asarray(logits, np.float64)
        _check(y, z, "logit")
        # log(1 + exp(z)) - y z, without overflow
        loss = np.maximum(z, 0) - y * z + np.log1p(np.exp(-np.abs(z)))
        with np.errstate(over="ignore"):
            probability = 1 / (1 + np.exp(-z))
        self._add(y, z, loss, probability, weights)

    def update_probabilities(self, labels: Floats, probabilities: Floats) -> None:
        """Adds rows with their probabilities, as a server returns them.

        For the logloss, probabilities are kept 1.2e-7 away from 0 and 1.

        Raises:
            InvalidArgumentError: as in `update`, or a probability is outside [0, 1].
        """
        y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
        _check(y, p, "probability")
        if p.size and not (p.min() >= 0 and p.max() <= 1):
            raise InvalidArgumentError(
                f"probabilities reach from {p.min():g} to {p.max():g}; expected [0, 1]: is this "
                "output a logit?"
            )
        with np.errstate(divide="ignore"):
            logits = np.log(p) - np.log1p(-p)
        clipped = np.clip(p, _PROBABILITY_FLOOR, 1 - _PROBABILITY_FLOOR)
        loss = -(y * np.log(clipped) + (1 - y) * np.log1p(-clipped))
        self._add(y, logits, loss, p)

    def result(self) -> Quality:
        """Returns the metrics over all rows so far."""
        nan = float("nan")
        total = self._rows if self._weight is None else self._weight
        return Quality(
            rows=self._rows,
            auc=self._auc.result(),
            logloss=self._loss / total if total else nan,
            calibration=self._predicted / self._positives if self._positives else nan,
            label_mean=self._positives / total if total else nan,
        )

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the partial sums, from which `set_state` continues to the last bit."""
        sums = np.array([self._loss, self._predicted, self._positives])
        weight = {} if self._weight is None else {"weight": np.array([self._weight])}
        return {"rows": np.array([self._rows]), "sums": sums, **weight, **self._auc.state()}

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state` returned.

        Raises:
            DataLossError: `state` is not such a state; nothing has changed.
        """
        rows, sums = _array_of(state, "rows", 1), _array_of(state, "sums", 3)
        weight = float(_array_of(state, "weight", 1)[0]) if "weight" in state else None
        self._auc.set_state(state)
        self._rows, self._weight = int(rows[0]), weight
        self._loss, self._predicted, self._positives = map(float, sums)

    def _add(
        self,
        y: Floats,
        z: Floats,
        loss: Floats,
        probability: Floats,
        weights: Floats | None = None,
    ) -> None:
        self._auc.update(y, z, weights)
        self._rows += len(y)
        if weights is not None:
            w = np.asarray(weights, np.float64)
            self._weight = (self._weight or 0.0) + float(w.sum())
            y, loss, probability = w * y, w * loss, w * probability
        self._loss += float(loss.sum())
        self._predicted += float(probability.sum())
        self._positives += float(y.sum())


_STATE_TYPES = {
    "rows": np.int64, "sums": np.float64, "bins": np.int64, "counts": np.float64,
    "logits": np.float64, "labels": np.bool_, "weight": np.float64, "weights": np.float64,
}  # fmt: skip


def _array_of(
    state: Mapping[str, npt.NDArray[Any]], name: str, length: int
) -> npt.NDArray[np.generic]:
    """Returns an array of a state after checking its type and length."""
    array = state.get(name)
    if array is None or array.dtype != _STATE_TYPES[name] or array.shape != (length,):
        raise DataLossError(f"the state of the metrics is damaged: {name} is not as it was written")
    return array


def _check(labels: Floats, scores: Floats, what: str) -> None:
    if labels.shape != scores.shape or labels.ndim != 1:
        raise InvalidArgumentError(
            f"labels have shape {labels.shape}, scores {scores.shape}; expected one {what} a label"
        )
    binary = (labels == 0.0) | (labels == 1.0)
    if not binary.all():
        bad = labels[~binary][0]
        raise InvalidArgumentError(f"label {bad:g} is neither 0 nor 1; expected binary labels")
    if np.isnan(scores).any():
        raise InvalidArgumentError(f"a {what} is NaN in row {int(np.argmax(np.isnan(scores)))}")
