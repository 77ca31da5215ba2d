"""Test-then-train metrics by window of event time."""

import numpy as np
import pytest

from hotrow.trainer.online.progressive import ProgressiveMetrics


def add(metrics, newest, labels=(0, 1), logits=(-1.0, 1.0)):
    return metrics.add(np.array(labels, np.float32), np.array(logits, np.float32), None, newest)


def test_a_window_ends_with_the_first_event_of_a_later_one():
    metrics = ProgressiveMetrics(10.0)
    assert add(metrics, 101.0) is None
    assert add(metrics, 109.0, logits=(1.0, -1.0)) is None
    ended = add(metrics, 110.0)
    assert (ended.rows, ended.auc) == (4, pytest.approx(0.5))
    assert metrics.progress().window == ended
    assert metrics.progress().total.rows == 6


def test_late_events_count_in_the_present_window():
    metrics = ProgressiveMetrics(10.0)
    add(metrics, 125.0)
    assert add(metrics, 103.0) is None
    assert add(metrics, 131.0).rows == 4


def test_without_times_there_is_a_total_alone():
    metrics = ProgressiveMetrics(10.0)
    assert add(metrics, float("nan")) is None
    assert metrics.progress().window is None
    assert metrics.progress().total.rows == 2
