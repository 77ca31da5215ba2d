"""The model that labels are drawn from: its probability of a row is the best possible score.

logit = bias + a weight per key + products of two keys' vectors + a slope per log1p(count).

Every part is centred and scaled against the law of its keys, so that the logit has mean `bias`
and standard deviation `SIGNAL` whatever seed, number of keys and skew; and it can be learned from
about a million rows, because only the `HEAD_RANKS` most popular keys of a column weigh anything.
A missing value weighs nothing (a missing count: as much as 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotrow.trainer.data.batch import Ints
from hotrow.trainer.data.synthetic.parameters import Parameters
from hotrow.trainer.data.synthetic.zipf import Array, Zipf

KEY_COLUMNS = 26
COUNT_COLUMNS = 13
LABEL_RATE = 0.25
SIGNAL = 1.3
VARIANCE_OF_KEYS = 0.73
VARIANCE_OF_PAIRS = 0.02
VARIANCE_OF_COUNTS = 0.25
HEAD_RANKS = 64
SHRINK_RANKS = 16  # this rank's key has about 0.7 of the first one's weight
PAIRS = 4
PAIR_RANKS = 32
PAIR_WIDTH = 2


@dataclass(frozen=True)
class CountLaw:
    """The law of a column of counts: floor(exp(mean + deviation * normal)), or missing."""

    mean: float
    deviation: float
    missing: float


@dataclass(frozen=True)
class Pair:
    """Two columns whose keys' vectors, float64 [PAIR_RANKS + 1, PAIR_WIDTH], are multiplied."""

    first: int
    second: int
    first_vectors: Array
    second_vectors: Array


class TrueModel:
    """The laws of the columns and the weights of the labels, drawn from a seed.

    Attributes:
        parameters: what it was made from.
        zipfs: the laws of the K columns of keys.
        missing: float64 [K], the share of missing keys.
        counts: the laws of the M columns of counts.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Draws laws and weights."""
        self.parameters = parameters
        rng = np.random.default_rng(np.random.SeedSequence([parameters.seed, 0xC11C]))
        exponents = rng.permutation(0.2 + 0.8 * np.linspace(0.0, 1.0, KEY_COLUMNS) ** 3)
        self.zipfs = [
            Zipf(max(2, round(parameters.keys**exponent)), parameters.skew)
            for exponent in exponents
        ]
        self.missing = rng.choice([0.0, 0.0, 0.02, 0.1, 0.3], KEY_COLUMNS)
        self.counts = [
            CountLaw(*law)
            for law in zip(
                rng.uniform(0.0, 4.0, COUNT_COLUMNS),
                rng.uniform(0.7, 1.5, COUNT_COLUMNS),
                rng.choice([0.0, 0.05, 0.2, 0.4], COUNT_COLUMNS),
                strict=True,
            )
        ]
        self._weights = self._draw_weights(rng)
        self._pairs = self._draw_pairs(rng)
        self._slopes, self._offset = self._draw_slopes(rng)
        self._bias = _bias(LABEL_RATE, SIGNAL)

    def logits(self, ranks: list[Ints], counts: list[Ints]) -> Array:
        """Returns the logit float64 [B] before noise.

        Args:
            ranks: K arrays int64 [B]; -1 is missing.
            counts: M arrays int64 [B]; -1 is missing.
        """
        logits = np.full(len(ranks[0]), self._bias - self._offset)
        for weights, column in zip(self._weights, ranks, strict=True):
            logits += weights[_head(column, len(weights) - 1)]
        for pair in self._pairs:
            first = pair.first_vectors[_head(ranks[pair.first], PAIR_RANKS)]
            second = pair.second_vectors[_head(ranks[pair.second], PAIR_RANKS)]
            logits += np.einsum("bd,bd->b", first, second)
        for slope, column in zip(self._slopes, counts, strict=True):
            logits += slope * np.log1p(np.maximum(column, 0))
        return logits

    def probabilities(self, logits: Array) -> Array:
        """Returns the true probabilities float64 [B] of label 1, the noise included."""
        noise = self.parameters.noise
        return (1.0 - noise) / (1.0 + np.exp(-logits)) + noise * LABEL_RATE

    def _draw_weights(self, rng: np.random.Generator) -> list[Array]:
        """Returns K arrays [head + 1]: the weights of the head's ranks, then 0 for all others."""
        shares = rng.uniform(0.5, 1.5, KEY_COLUMNS)
        shares *= VARIANCE_OF_KEYS / shares.sum()
        weights = []
        for zipf, missing, share in zip(self.zipfs, self.missing, shares, strict=True):
            head = np.arange(min(zipf.keys, HEAD_RANKS))
            raw = rng.normal(size=len(head)) / np.sqrt(1.0 + head / SHRINK_RANKS)
            scaled = _standardized(raw[:, None], zipf.probability(head) * (1.0 - missing))[:, 0]
            weights.append(np.append(scaled * SIGNAL * np.sqrt(share), 0.0))
        return weights

    def _draw_pairs(self, rng: np.random.Generator) -> list[Pair]:
        columns = rng.permutation(KEY_COLUMNS)[: 2 * PAIRS].reshape(PAIRS, 2).tolist()
        deviation = SIGNAL * np.sqrt(VARIANCE_OF_PAIRS / PAIRS / PAIR_WIDTH)
        return [
            Pair(
                first,
                second,
                self._draw_vectors(rng, first) * deviation,
                self._draw_vectors(rng, second),
            )
            for first, second in columns
        ]

    def _draw_vectors(self, rng: np.random.Generator, column: int) -> Array:
        zipf = self.zipfs[column]
        head = np.arange(min(zipf.keys, PAIR_RANKS))
        raw = rng.normal(size=(len(head), PAIR_WIDTH))
        vectors = np.zeros((PAIR_RANKS + 1, PAIR_WIDTH))
        probability = zipf.probability(head) * (1.0 - self.missing[column])
        vectors[: len(head)] = _standardized(raw, probability)
        return vectors

    def _draw_slopes(self, rng: np.random.Generator) -> tuple[Array, float]:
        """Returns M slopes of log1p(count) and the mean of their sum."""
        normal = _normal_grid()
        slopes, offset = np.empty(COUNT_COLUMNS), 0.0
        signs = rng.choice([-1.0, 1.0], COUNT_COLUMNS)
        deviation = SIGNAL * np.sqrt(VARIANCE_OF_COUNTS / COUNT_COLUMNS)
        for i, law in enumerate(self.counts):
            values = np.log1p(np.floor(np.exp(law.mean + law.deviation * normal)))
            mean = (1.0 - law.missing) * values.mean()
            variance = (1.0 - law.missing) * np.square(values).mean() - mean**2
            slopes[i] = signs[i] * deviation / np.sqrt(variance)
            offset += slopes[i] * mean
        return slopes, offset


def _head(ranks: Ints, size: int) -> Ints:
    """Returns int64 [B]: the rank if it is below `size`; else `size`, also for -1."""
    return np.minimum(ranks.view(np.uint64), np.uint64(size)).view(np.int64)


def _standardized(raw: Array, probability: Array) -> Array:
    """Returns raw [N, D] shifted and scaled to mean 0 and variance 1 in each dimension.

    Args:
        raw: values of the head's ranks.
        probability: [N] of these ranks; the rest up to 1 has the value 0.
    """
    centred = raw - probability @ raw / probability.sum()
    deviation = np.sqrt(probability @ np.square(centred))
    scaled: Array = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    return scaled


def _normal_grid(points: int = 4001) -> Array:
    """Returns numbers spread like a standard normal law, by inverting its distribution."""
    grid = np.linspace(-6.0, 6.0, 20_001)
    density = np.exp(-0.5 * np.square(grid))
    cumulative = np.cumsum(density) / density.sum()
    return np.interp((np.arange(points) + 0.5) / points, cumulative, grid)


def _bias(rate: float, deviation: float) -> float:
    """Returns the bias at which a normal logit of this deviation has the mean label `rate`."""
    normal = _normal_grid()
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if np.mean(1.0 / (1.0 + np.exp(-(middle + deviation * normal)))) < rate:
            low = middle
        else:
            high = middle
    return low
