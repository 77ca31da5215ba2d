"""Generators of the whole process are put back where they were."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from hotrow.errors import DataLossError
from hotrow.trainer.checkpoint.random_state import capture_random_state, restore_random_state


def draw():
    return random.random(), random.gauss(0, 1), np.random.random(), np.random.normal()


def test_what_is_drawn_afterwards_is_the_same_after_a_way_through_json():
    draw()
    text = json.dumps(capture_random_state())
    first = [draw() for _ in range(3)]
    restore_random_state(json.loads(text))
    assert [draw() for _ in range(3)] == first


@pytest.mark.parametrize("state", [{}, {"python": [3, [], None]}, {"python": 1, "numpy": 2}])
def test_what_is_no_state_is_data_loss(state):
    with pytest.raises(DataLossError, match="random state is damaged"):
        restore_random_state(state)
