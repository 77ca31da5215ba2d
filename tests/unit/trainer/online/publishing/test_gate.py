"""Gates of a cut: norms that grow, canary scores that change."""

import numpy as np
import pytest

from hotrow.norms import GateError
from hotrow.trainer.online.publishing.gate import (
    CanaryScores,
    Gate,
    GoodScores,
    Limits,
    check_canary,
)

LIMITS = Limits(10.0, 0.5, 0.1)


def scores(mean, auc):
    return CanaryScores(np.full(4, mean, np.float32), mean, auc)


def test_the_canary_may_change_a_little():
    check_canary(None, scores(0.9, 0.5), LIMITS)
    check_canary(scores(0.3, 0.8), scores(0.7, 0.71), LIMITS)
    check_canary(scores(0.1, 0.9), scores(0.9, 0.1), Limits(None, None, None))


@pytest.mark.parametrize(
    ("now", "match"),
    [
        (scores(0.85, 0.8), "mean score is 0.8500, in the last good cut 0.3000"),
        (scores(0.3, 0.69), "AUC is 0.6900, in the last good cut 0.8000"),
        (scores(float("nan"), 0.8), "not finite"),
    ],
)
def test_a_canary_that_changes_more_is_refused(now, match):
    with pytest.raises(GateError, match=match):
        check_canary(scores(0.3, 0.8), now, LIMITS)


def test_a_canary_of_one_label_has_no_auc_to_fall():
    check_canary(scores(0.3, float("nan")), scores(0.3, float("nan")), LIMITS)


def test_a_closed_gate_keeps_its_first_reason_until_it_is_opened():
    gate = Gate()
    assert not gate.is_closed
    gate.close("first")
    gate.close("second")
    assert (gate.reason, gate.closed_total) == ("first", 1)
    gate.open(force=True)
    assert (gate.is_closed, gate.force) == (False, True)


def test_scores_are_compared_with_those_of_the_best_cut_of_late():
    """A fall in small steps is a fall."""
    good = GoodScores()
    for auc in (0.8, 0.75, 0.72):
        good.check(scores(0.3, auc), LIMITS)
        good.add(scores(0.3, auc))
    with pytest.raises(GateError, match=r"AUC is 0\.6900, in the last good cut 0\.8000"):
        good.check(scores(0.3, 0.69), LIMITS)
