"""Loads that were under way when the process ended: one alone is the cause."""

from __future__ import annotations

import threading

from hotrow.serving.data_plane.load_turns import LoadTurns


def crashes(turns: LoadTurns) -> dict[tuple[str, ...], int]:
    (family,) = turns.families()
    return {labels: cell.count for labels, cell in family.cells.items()}


def test_a_load_that_was_alone_is_the_cause() -> None:
    turns = LoadTurns()
    with turns.turn("m", 1) as turn:
        assert turns.blames(turn)
    assert crashes(turns) == {("m", "1"): 1}


def test_of_several_none_is_the_cause_until_it_is_alone() -> None:
    turns = LoadTurns()
    with turns.turn("m", 1) as one, turns.turn("n", 1) as other:
        assert not turns.blames(one)
        assert not turns.blames(other)
    assert crashes(turns) == {}
    began: list[str] = []

    def load(model: str) -> None:
        with turns.turn(model, 1):
            began.append(model)

    with turns.turn("m", 1) as one:
        threads = [threading.Thread(target=load, args=[model]) for model in ("n", "another")]
        for thread in threads:
            thread.start()
            thread.join(0.1)
        assert began == []
        assert turns.blames(one)
    for thread in threads:
        thread.join()
    assert sorted(began) == ["another", "n"]
    assert crashes(turns) == {("m", "1"): 1}


def test_a_version_that_was_loaded_is_no_suspect() -> None:
    turns = LoadTurns()
    with turns.turn("m", 1) as turn:
        turns.blames(turn)
    turns.clear("m", 1)
    with turns.turn("m", 1) as turn, turns.turn("n", 1):
        assert not turn.alone
