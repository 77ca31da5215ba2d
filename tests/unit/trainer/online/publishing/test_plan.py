"""Where publishing goes on: after a start, a kill, a lost store, another trainer."""

import pytest

from hotrow.errors import FencedError
from hotrow.lineage import Lineage, Start
from hotrow.store.published import PublishedState
from hotrow.trainer.online.publishing.journal import Entry
from hotrow.trainer.online.publishing.plan import (
    Begin,
    Published,
    begin_again,
    begin_of_process,
    exported_rows,
)
from hotrow.trainer.online.publishing.store_writer import Shown

FIRST = Start("first", 0)
RESUMED = Lineage((FIRST, Start("second", 10)))
BASE = Published("g", 5, "", {"t": 3})


def shown(version, identity, step, lineage="first", clock=4):
    return Shown(version, identity, (clock,), lineage, step)


def begin(what, restored=None, entries=(), lineage=RESUMED):
    return begin_of_process(what, "g", ["t"], lineage, restored, list(entries))


def test_a_new_trainer_goes_on_from_an_export_of_its_own_training():
    found = begin(shown(5, "", 10))
    assert isinstance(found, Begin)
    assert (found.since, found.journal_after) == ({"t": 4}, None)


def test_an_export_of_another_training_needs_a_base():
    assert begin(shown(5, "", 10, lineage="other")) is None


def test_a_resumed_trainer_marks_what_changed_since_the_cut_of_its_checkpoint():
    found = begin(shown(5, "", 8, clock=3), restored=BASE)
    assert found == Begin({"t": 3}, None, BASE)


def test_cuts_after_the_checkpoint_are_known_by_the_journal():
    """They are of steps that the resumed trainer takes again, so their clocks mean nothing."""
    entries = [Entry(6, "id6", "", "g", 11), Entry(7, "id7", "id6", "g", 12)]
    found = begin(shown(7, "id7", 12), restored=BASE, entries=entries)
    assert found == Begin({"t": 3}, 5, BASE)
    assert begin(shown(7, "id7", 12), restored=BASE, entries=entries[1:]) is None
    assert begin(shown(8, "id8", 13), restored=BASE, entries=entries) is None


def test_without_a_cut_in_the_checkpoint_the_newest_one_before_it_is_looked_for():
    states = [
        PublishedState(version=v, identity=f"id{v}", step=step, clocks=(v,), lineage=lineage)
        for v, step, lineage in ((5, 8, "first"), (6, 10, "first"), (7, 14, "killed"))
    ]
    entries = [Entry(7, "id7", "id6", "g", 14)]
    at = shown(7, "id7", 14, lineage="killed")
    found = begin_of_process(at, "g", ["t"], RESUMED, None, entries, states)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))
    assert begin_of_process(at, "g", ["t"], RESUMED, None, [], states) is None
    assert begin_of_process(at, "g", ["t"], RESUMED, None, entries, states[2:]) is None


def test_a_cut_of_the_checkpoint_that_the_store_has_lost_is_passed_over():
    """The cut after it goes on from the one before it."""
    states = [
        PublishedState(version=v, identity=f"id{v}", step=step, clocks=(v,), lineage=lineage)
        for v, step, lineage in ((6, 9, "first"), (7, 10, "first"), (8, 14, "killed"))
    ]
    entries = [Entry(7, "id7", "id6", "g", 10), Entry(8, "id8", "id6", "g", 14)]
    lost = Published("g", 7, "id7", {"t": 7})
    at = shown(8, "id8", 14, lineage="killed")
    found = begin_of_process(at, "g", ["t"], RESUMED, lost, entries, states)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))


def test_lost_cuts_from_before_the_checkpoint_are_passed_over_without_an_entry():
    """The store has lost 7 and 8; the checkpoint named 8, so the entry of 7 was deleted."""
    states = [
        PublishedState(version=v, identity=f"id{v}", step=step, clocks=(v,), lineage=lineage)
        for v, step, lineage in ((6, 8, "first"), (8, 10, "first"), (9, 14, "killed"))
    ]
    entries = [Entry(8, "id8", "id7", "g", 10), Entry(9, "id9", "id6", "g", 14)]
    lost = Published("g", 8, "id8", {"t": 8})
    at = shown(9, "id9", 14, lineage="killed")
    found = begin_of_process(at, "g", ["t"], RESUMED, lost, entries, states)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))


def test_a_checkpoint_from_before_the_full_export_goes_on_from_the_exported_rows():
    """The newest cut is of a start that was killed before its first checkpoint."""
    rows = exported_rows(shown(5, "", 8, clock=3), "g", ["t"], RESUMED)
    assert rows == BASE
    entries = [Entry(6, "id6", "", "g", 11), Entry(7, "id7", "id6", "g", 12)]
    found = begin(shown(7, "id7", 12, lineage="killed"), restored=rows, entries=entries)
    assert found == Begin({"t": 3}, 5, BASE)
    assert exported_rows(shown(5, "", 8, lineage="other"), "g", ["t"], RESUMED) is None


def test_after_a_failure_marks_stay_if_servers_show_the_last_cut_or_one_in_doubt():
    last = Published("g", 6, "id6", {"t": 4})
    assert begin_again(shown(6, "id6", 11), "g", ["t"], RESUMED, last, set()) is True
    assert begin_again(shown(7, "id7", 12), "g", ["t"], RESUMED, last, {"id7"}) is True


def test_a_store_that_went_back_to_an_earlier_cut_gets_what_changed_since():
    last = Published("g", 8, "id8", {"t": 9})
    found = begin_again(shown(6, "id6", 10, "second", 5), "g", ["t"], RESUMED, last, set())
    assert isinstance(found, Begin)
    assert found.since == {"t": 5}


def test_a_store_that_went_back_to_before_a_resume_needs_a_base():
    last = Published("g", 8, "id8", {"t": 9})
    assert begin_again(shown(6, "id6", 11, "first"), "g", ["t"], RESUMED, last, set()) is None


def test_a_trainer_that_finds_the_cuts_of_another_one_ends():
    last = Published("g", 6, "id6", {"t": 4})
    with pytest.raises(FencedError, match="another process has published step 20"):
        begin_again(shown(9, "id9", 20, "other"), "g", ["t"], RESUMED, last, set())
    with pytest.raises(FencedError):
        begin_again(shown(9, "id9", 20, "other"), "h", ["t"], RESUMED, last, set())
