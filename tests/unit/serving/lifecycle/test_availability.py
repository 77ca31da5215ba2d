"""What is loaded and unloaded next, version by version."""

from __future__ import annotations

import pytest

from hotrow.serving.lifecycle.availability import (
    Candidate,
    Stage,
    version_to_load,
    version_to_unload,
)

NEW, READY, OTHER = Stage.NEW, Stage.READY, Stage.OTHER


def aspired(version: int, stage: Stage) -> Candidate:
    return Candidate(version, stage, aspired=True)


def leftover(version: int, stage: Stage) -> Candidate:
    return Candidate(version, stage, aspired=False)


def test_the_highest_new_aspired_version_is_loaded_first() -> None:
    versions = [aspired(1, NEW), aspired(3, NEW), leftover(4, NEW), aspired(5, READY)]
    assert version_to_load(versions) == 3
    assert version_to_load([aspired(5, OTHER), leftover(4, NEW)]) is None


@pytest.mark.parametrize(
    ("versions", "unloaded"),
    [
        pytest.param([leftover(1, READY), aspired(2, READY)], 1, id="it is replaced"),
        pytest.param(
            [leftover(1, READY), aspired(2, OTHER)], None, id="the new one loads or failed"
        ),
        pytest.param([leftover(1, READY), aspired(2, NEW)], None, id="the new one is not loaded"),
        pytest.param([leftover(1, READY)], 1, id="none is aspired"),
        pytest.param(
            [leftover(2, READY), leftover(1, READY), aspired(3, OTHER)], 1, id="two are left over"
        ),
        pytest.param(
            [leftover(1, READY), leftover(2, READY), aspired(3, READY)], 1, id="the lowest goes"
        ),
        pytest.param([leftover(1, OTHER), aspired(2, READY)], None, id="it is on its way out"),
        pytest.param([aspired(1, READY), aspired(2, READY)], None, id="all are aspired"),
        pytest.param([], None, id="there is none"),
    ],
)
def test_a_version_is_unloaded_when(versions: list[Candidate], unloaded: int | None) -> None:
    assert version_to_unload(versions) == unloaded
