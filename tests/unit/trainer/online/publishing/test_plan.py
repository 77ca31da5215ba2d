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
    begin_anew,
    published_before,
)
from hotrow.trainer.online.publishing.store_writer import Shown

FIRST = Start("first", 0)
RESUMED = Lineage((FIRST, Start("second", 10)))
BASE = Published("g", 5, "", {"t": 3})


def shown(version, identity, step, lineage="first", clock=4):
    return Shown(version, identity, (clock,), lineage, step)


def states(*facts):
    return [
        PublishedState(version=v, identity=f"id{v}", step=step, clocks=(v,), lineage=lineage)
        for v, step, lineage in facts
    ]


def behind(restored, published=(), exported=None):
    exported = exported or shown(1, "", 1, lineage="other")
    return published_before(exported, published, "g", ["t"], RESUMED, restored)


def begin(what, restored=None, entries=(), lineage=RESUMED, published=(), exported=None):
    before = behind(restored, published, exported)
    return begin_anew(what, "g", ["t"], lineage, before, lambda: list(entries))


def again(what, last, in_doubt=(), generation="g", restored=None, entries=(), published=()):
    before, noted = behind(restored, published), list(entries)
    doubtful = set(in_doubt)
    return begin_again(what, generation, ["t"], RESUMED, last, doubtful, before, lambda: noted)


def test_a_new_trainer_goes_on_from_an_export_of_its_own_training():
    found = begin(shown(5, "", 10))
    assert isinstance(found, Begin)
    assert (found.since, found.journal_after) == ({"t": 4}, 5)


def test_an_export_of_another_training_needs_a_base():
    assert begin(shown(5, "", 10, lineage="other")) is None


def test_a_resumed_trainer_marks_what_changed_since_the_cut_of_its_checkpoint():
    found = begin(shown(5, "", 8, clock=3), restored=BASE)
    assert found == Begin({"t": 3}, 5, BASE)


def test_cuts_after_the_checkpoint_are_known_by_the_journal():
    """They are of steps that the resumed trainer takes again, so their clocks mean nothing."""
    entries = [Entry(6, "id6", "", "g", 11), Entry(7, "id7", "id6", "g", 12)]
    found = begin(shown(7, "id7", 12), restored=BASE, entries=entries)
    assert found == Begin({"t": 3}, 5, BASE)
    assert begin(shown(7, "id7", 12), restored=BASE, entries=entries[1:]) is None
    assert begin(shown(8, "id8", 13), restored=BASE, entries=entries) is None


def test_without_a_cut_in_the_checkpoint_the_newest_one_before_it_is_looked_for():
    published = states((5, 8, "first"), (6, 10, "first"), (7, 14, "killed"))
    entries = [Entry(7, "id7", "id6", "g", 14)]
    at = shown(7, "id7", 14, lineage="killed")
    found = begin(at, entries=entries, published=published)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))
    assert begin(at, published=published) is None
    assert begin(at, entries=entries, published=published[2:]) is None


def test_a_cut_of_the_checkpoint_that_the_store_has_lost_is_passed_over():
    """The cut after it goes on from the one before it."""
    published = states((6, 9, "first"), (7, 10, "first"), (8, 14, "killed"))
    entries = [Entry(7, "id7", "id6", "g", 10), Entry(8, "id8", "id6", "g", 14)]
    at = shown(8, "id8", 14, lineage="killed")
    found = begin(at, Published("g", 7, "id7", {"t": 7}), entries, published=published)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))


def test_lost_cuts_from_before_the_checkpoint_are_passed_over_without_an_entry():
    """The store has lost 7 and 8; the checkpoint named 8, so the entry of 7 was deleted."""
    published = states((6, 8, "first"), (8, 10, "first"), (9, 14, "killed"))
    entries = [Entry(8, "id8", "id7", "g", 10), Entry(9, "id9", "id6", "g", 14)]
    at = shown(9, "id9", 14, lineage="killed")
    found = begin(at, Published("g", 8, "id8", {"t": 8}), entries, published=published)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))


def test_a_checkpoint_from_before_the_full_export_goes_on_from_the_exported_rows():
    """The newest cut is of a start that was killed before its first checkpoint."""
    exported = shown(5, "", 8, clock=3)
    entries = [Entry(6, "id6", "", "g", 11), Entry(7, "id7", "id6", "g", 12)]
    at = shown(7, "id7", 12, lineage="killed")
    assert begin(at, entries=entries, exported=exported) == Begin({"t": 3}, 5, BASE)
    assert begin(at, entries=entries, exported=shown(5, "", 8, lineage="other")) is None


def test_what_another_generation_published_is_no_ancestor():
    other = Published("h", 6, "id6", {"t": 3})
    assert behind(other) == []
    found = behind(BASE, states((7, 10, "first"), (8, 12, "killed")), shown(5, "", 8))
    assert [(one.version, one.identity) for one in found] == [(5, ""), (7, "id7"), (5, "")]


def test_after_a_failure_marks_stay_if_servers_show_the_last_cut_or_one_in_doubt():
    last = Published("g", 6, "id6", {"t": 4})
    assert again(shown(6, "id6", 11), last) is True
    assert again(shown(7, "id7", 12), last, in_doubt={"id7"}) is True


def test_a_store_that_went_back_to_an_earlier_cut_gets_what_changed_since():
    last = Published("g", 8, "id8", {"t": 9})
    found = again(shown(6, "id6", 10, "second", 5), last)
    assert isinstance(found, Begin)
    assert found.since == {"t": 5}


def test_a_store_that_went_back_to_a_cut_of_a_killed_start_gets_its_keys_again():
    """That start published 7 and 8 after its last checkpoint, which names 6."""
    last = Published("g", 10, "id10", {"t": 9})
    published = states((6, 9, "first"), (7, 11, "first"), (8, 12, "first"), (9, 10, "second"))
    entries = [Entry(7, "id7", "id6", "g", 11), Entry(8, "id8", "id7", "g", 12)]
    found = again(shown(8, "id8", 12), last, entries=entries, published=published)
    assert found == Begin({"t": 6}, 6, Published("g", 6, "id6", {"t": 6}))
    assert again(shown(8, "id8", 12), last, entries=entries[1:], published=published) is None


def test_a_first_cut_that_fails_after_a_kill_is_taken_again():
    """Servers still show a cut of the killed start, which is newer than that of the checkpoint."""
    entries = [Entry(6, "id6", "", "g", 11)]
    found = again(shown(6, "id6", 11), BASE, restored=BASE, entries=entries)
    assert found == Begin({"t": 3}, 5, BASE)


def test_a_trainer_that_finds_the_cuts_of_another_one_ends():
    last = Published("g", 6, "id6", {"t": 4})
    with pytest.raises(FencedError, match="another process has published step 20"):
        again(shown(9, "id9", 20, "other"), last)
    with pytest.raises(FencedError):
        again(shown(9, "id9", 20, "other"), last, generation="h")
