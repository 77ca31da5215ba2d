"""When a cut that was not taken is tried again."""

from __future__ import annotations

import math

from hotrow.errors import DataLossError
from hotrow.serving.data_plane.executable import ServerEndedError
from hotrow.serving.updates.retries import MOST_CRASHES, Retries


def test_pauses_double_up_to_a_limit_and_begin_anew_with_another_cut() -> None:
    retries, error = Retries(), DataLossError("damaged")
    assert [retries.pause_after(7, error) for _ in range(7)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert retries.pause_after(8, error) == 0.5


def test_a_cut_that_ends_the_executable_is_given_up() -> None:
    retries, error = Retries(), ServerEndedError("ended")
    pauses = [retries.pause_after(7, error) for _ in range(MOST_CRASHES)]
    assert pauses == [0.5, 1, 2, 4, math.inf]
    assert retries.pause_after(8, error) == 0.5
