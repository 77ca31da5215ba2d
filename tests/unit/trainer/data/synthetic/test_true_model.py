"""The model that generated labels are drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.synthetic import Parameters
from hotrow.trainer.data.synthetic.rows import generate_blocks
from hotrow.trainer.data.synthetic.true_model import LABEL_RATE, SIGNAL, TrueModel
from hotrow.trainer.metrics import BinaryMetrics


@pytest.mark.parametrize(
    "parameters",
    [Parameters(), Parameters(seed=5), Parameters(keys=200), Parameters(skew=1.4)],
    ids=["defaults", "another seed", "few keys", "more skew"],
)
def test_true_auc_lies_where_the_issue_wants_it(parameters: Parameters) -> None:
    metrics = BinaryMetrics()
    for block in generate_blocks(TrueModel(parameters), 150_000, stream=0):
        metrics.update_probabilities(block.labels, block.probabilities)
    quality = metrics.result()
    assert 0.75 < quality.auc < 0.80
    assert quality.label_mean == pytest.approx(LABEL_RATE, abs=0.01)
    assert quality.calibration == pytest.approx(1.0, abs=0.02)


def test_true_probabilities_are_the_rates_of_the_labels() -> None:
    (block,) = generate_blocks(TrueModel(Parameters(seed=1)), 60_000, stream=0)
    order = np.argsort(block.probabilities)
    for rows in np.array_split(order, 20):
        probability = block.probabilities[rows]
        deviation = np.sqrt(np.mean(probability * (1 - probability)) / len(rows))
        assert abs(block.labels[rows].mean() - probability.mean()) < 4.5 * deviation


def test_noise_lowers_the_best_possible_auc() -> None:
    def auc(noise: float) -> float:
        metrics = BinaryMetrics()
        for block in generate_blocks(TrueModel(Parameters(noise=noise)), 60_000, stream=0):
            metrics.update_probabilities(block.labels, block.probabilities)
        return metrics.result().auc

    assert auc(0.0) > auc(0.1) + 0.01 > auc(0.5) + 0.05


def test_logits_have_the_promised_spread() -> None:
    model = TrueModel(Parameters(seed=2, noise=0.0))
    (block,) = generate_blocks(model, 60_000, stream=0)
    logits = np.log(block.probabilities) - np.log1p(-block.probabilities)
    assert np.std(logits) == pytest.approx(SIGNAL, rel=0.05)


def test_a_missing_value_weighs_nothing_and_a_missing_count_as_much_as_zero() -> None:
    model = TrueModel(Parameters())
    unknown = [np.array([-1, 10**9]) for _ in model.zipfs]
    counts = [np.array([-1, 0]) for _ in model.counts]
    first, second = model.logits(unknown, counts)
    assert first == second


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"keys": 15}, "keys is 15; it must be between 16 and 4294967296"),
        ({"skew": -0.1}, "skew is -0.1; it must be between 0 and 4"),
        ({"skew": float("nan")}, "skew is nan; it must be between 0 and 4"),
        ({"noise": 1.0}, "noise is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_impossible_parameters_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Parameters(**values)  # type: ignore[arg-type]
