"""Which states of training were trained on from which."""

from __future__ import annotations

from hotrow.lineage import Lineage, Start


def lineage(*starts):
    return Lineage(tuple(Start(name, step) for name, step in starts))


def test_each_start_has_an_id_of_its_own_and_the_step_that_it_went_on_from():
    first = Lineage().started(0)
    again = first.started(40)
    assert again.starts[0] == first.starts[0]
    assert [start.step for start in again.starts] == [0, 40]
    assert again.id == again.starts[1].id != first.id
    assert Lineage().id == ""
    assert Lineage.of_json(again.as_json()) == again


def test_a_state_descends_from_those_before_it():
    assert lineage(("a", 0)).descends_from("a", 30)
    assert lineage(("a", 0), ("b", 30)).descends_from("a", 30)
    assert lineage(("a", 0), ("b", 40), ("c", 50)).descends_from("a", 30)
    assert lineage(("a", 0), ("b", 10), ("c", 50)).descends_from("b", 30)


def test_a_state_does_not_descend_from_other_runs_or_from_what_was_left_behind():
    assert not lineage(("b", 0)).descends_from("a", 0)
    assert not Lineage().descends_from("a", 0)
    assert not Lineage().descends_from("", 0)
    assert not lineage(("a", 0), ("b", 20)).descends_from("a", 30)
    assert not lineage(("a", 0), ("b", 20), ("c", 50)).descends_from("a", 30)
    assert not lineage(("a", 0)).descends_from("b", 30), "trained on elsewhere"
