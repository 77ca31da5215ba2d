"""The journal of published keys: what a resumed trainer publishes again."""

import dataclasses

import numpy as np
import pytest

from hotrow.errors import DataLossError
from hotrow.trainer.online.publishing.journal import FOLDER, Entry, Journal, leads_from


def entry(version, previous, generation="g", ranks=1):
    return Entry(version, f"id{version}", previous, generation, step=version, ranks=ranks)


def keys(*values):
    return {"t": np.array(values, np.int64)}


def test_keys_of_later_cuts_are_distinct_and_of_all_ranks(tmp_path):
    first, second = Journal(tmp_path, 0), Journal(tmp_path, 1)
    for journal, offset in ((first, 0), (second, 100)):
        journal.write(entry(1, "", ranks=2), keys(1 + offset))
        journal.write(entry(2, "id1", ranks=2), keys(2 + offset, 3 + offset))
        journal.write(entry(3, "id2", ranks=2), keys(3 + offset, 4 + offset))
    assert first.keys_since(1)["t"].tolist() == [2, 3, 4, 102, 103, 104]
    assert [e.version for e in second.entries()] == [1, 2, 3]


def test_a_cut_that_one_rank_has_not_noted_is_no_entry(tmp_path):
    Journal(tmp_path, 0).write(entry(1, "", ranks=2), keys(1))
    assert Journal(tmp_path, 0).entries() == []


def test_entries_before_the_cut_of_a_checkpoint_are_forgotten(tmp_path):
    journal = Journal(tmp_path)
    for version in (1, 2, 3):
        journal.write(entry(version, ""), keys(version))
    journal.forget_before(2)
    assert [e.version for e in journal.entries()] == [2, 3]
    assert Journal(tmp_path / "none").entries() == []


def test_entries_of_an_earlier_process_stay(tmp_path, monkeypatch):
    """No later checkpoint has the rows of what was published after the one that it went on from."""
    monkeypatch.setattr("hotrow.trainer.online.publishing.journal._MOST_EARLIER", 2)
    first = Journal(tmp_path)
    for version in (1, 2, 3):
        first.write(entry(version, ""), keys(version))
    second = Journal(tmp_path)
    for version in (4, 5):
        second.write(entry(version, ""), keys(version))
    second.forget_before(5)
    assert [e.version for e in second.entries()] == [2, 3, 5]
    second.forget_before(6)
    assert [e.version for e in second.entries()] == [2, 3]


def test_after_a_full_export_no_entry_is_left(tmp_path):
    first, second = Journal(tmp_path, 0), Journal(tmp_path, 1)
    for journal in (first, second):
        journal.write(entry(1, "", ranks=2), keys(1))
    (path,) = (tmp_path / FOLDER).glob("*@1.safetensors")
    path.write_bytes(b"damaged")
    first.clear()
    assert first.entries() == []
    assert first.keys_since(0) == {}


def test_a_file_cut_short_is_an_error_and_an_unfinished_one_is_not(tmp_path):
    journal = Journal(tmp_path)
    journal.write(entry(1, ""), keys(1))
    (tmp_path / FOLDER / "0000000000000002@0.safetensors.unfinished").write_bytes(b"half")
    assert len(journal.entries()) == 1
    (path,) = (tmp_path / FOLDER).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataLossError):
        journal.entries()


def test_a_journal_leads_from_one_cut_to_another_if_it_has_all_between():
    one, two, three = entry(1, ""), entry(2, "id1"), entry(3, "id2")
    assert leads_from([one, two, three], "id1", 1, "id3", "g")
    assert leads_from([one, two, three], "", 0, "id3", "g")
    assert not leads_from([one, three], "id1", 1, "id3", "g")
    assert not leads_from([one, two, three], "id1", 1, "id4", "g")
    assert not leads_from([one, two, three], "id1", 2, "id3", "g"), "entries that do not count"
    # The commit of the second one failed, so the third goes on from the first, too.
    again = dataclasses.replace(three, previous="id1")
    assert leads_from([two, again], "id1", 1, "id3", "g")
    # The store has lost cuts before and after the checkpoint: those before it are in no entry.
    after = entry(4, "id1")
    assert leads_from([three, after], "id1", 1, "id4", "g")
    assert not leads_from([entry(5, "", "other")], "", 0, "id5", "g")


def test_entries_that_go_on_from_each_other_lead_nowhere():
    assert not leads_from([entry(2, "id3"), entry(3, "id2")], "id1", 1, "id3", "g")
