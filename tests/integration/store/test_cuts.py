"""Cuts on every store: staged, committed at once, folded; killed, torn and robbed exporters."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from stored_rows import ArrayRows, exported, float_rows, make_live, some_keys

from hotrow import _native
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.store.cut_folding import EarlierRowsLostError, fold
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import (
    TableChanges,
    cuts_of,
    dense_of,
    discard_unfinished,
    forget_cuts,
    read_blocks,
    row_block_bytes,
)
from hotrow.store.deletion import delete_generation
from hotrow.store.full_export import write_generation
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports

DENSE = bytes(range(256)) * 9000  # 2.2 MiB: several blocks

EXPORT = """
import sys, time
import numpy as np
from stored_rows import float_rows, some_keys
from hotrow.store import cut_writing, open_store
from hotrow.store.cuts import TableChanges
from hotrow.store.cut_writing import write_cut
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports

store = open_store(sys.argv[1])
(generation,) = Generations(store.records).all("m")
none = np.empty(0, np.int64)
cut_writing.ROWS_AT_ONCE_BYTES = 1

def changes():
    for part in range(20):
        print("part", flush=True)
        time.sleep(0.02)
        keys = some_keys(3000)[part::20].copy()
        yield 0, TableChanges(keys, float_rows(len(keys), 4, 1).view(np.uint8), none)

with lock_exports(store.records, "m", seconds=1) as lock:
    write_cut(store, generation, lock, changes=changes(), dense=b"", step=9, clocks=[9, 9])
"""


@pytest.fixture
def tables():
    return [
        ArrayRows("a", some_keys(3000), float_rows(3000, 4)),
        ArrayRows("b", some_keys(500), float_rows(500, 16)),
    ]


@pytest.fixture
def generation(store, tables):
    with lock_exports(store.records, "m") as lock:
        generation = write_generation(store, exported(), tables, lock, shards=16)
        make_live(store, generation)
    return generation


def change(keys, dim, seed, removed=()):
    rows = float_rows(len(keys), dim, seed).view(np.uint8)
    return TableChanges(keys, rows, np.array(removed, np.int64))


def cut(store, generation, changes, dense=DENSE, step=8):
    with lock_exports(store.records, "m") as lock:
        return write_cut(
            store, generation, lock, changes=changes, dense=dense, step=step, clocks=[step, step]
        )


def test_a_cut_is_read_back_whole_and_changes_no_row_until_it_is_folded(store, generation, tables):
    new = change(np.arange(1000, 1100), 16, 7)
    old = change(tables[0].keys[:700].copy(), 4, 8, removed=tables[0].keys[700:720])
    made = cut(store, generation, [(0, old), (1, new)])
    assert cuts_of(store.records, generation) == [made]
    assert (made.rows, made.removed, len(made.identity)) == (800, 20, 32)
    assert made.version > generation.row_version
    assert dense_of(store, generation, made) == DENSE
    found = {
        (block.table, int(key)): (row.tobytes(), int(version))
        for block in read_blocks(store, generation, made)
        if len(block.keys)  # else it is of dense weights
        for key, row, version in zip(block.keys, block.rows, block.versions, strict=True)
    }
    assert len(found) == 820
    for key, row in zip(new.keys, new.rows, strict=True):
        assert found[1, int(key)] == (row.tobytes(), made.version)
    for key in old.removed:
        assert found[0, int(key)] == (bytes(16), made.version | 1 << 63)
    for number, table in enumerate(tables):
        np.testing.assert_array_equal(store.read(generation, number, table.keys)[0], table.rows)

    assert fold(store, generation, [made])[0].folded
    rows, versions, states = store.read(generation, 0, tables[0].keys)
    np.testing.assert_array_equal(rows[:700], old.rows)
    assert states.tolist() == [1] * 700 + [0] * 20 + [1] * 2280
    assert (versions[:700] == made.version).all()
    np.testing.assert_array_equal(rows[720:], tables[0].rows[720:])
    np.testing.assert_array_equal(store.read(generation, 1, new.keys)[0], new.rows)
    assert (store.watermarks(generation) == made.version).all()
    assert cuts_of(store.records, generation)[0].folded


def test_a_record_that_was_read_before_is_not_parsed_again(store, generation):
    first = cut(store, generation, [], b"", 1)
    (known,) = cuts_of(store.records, generation)
    assert known == first
    second = cut(store, generation, [], b"", 2)
    found = cuts_of(store.records, generation)
    assert found == [first, second]
    assert found[0] is known
    (folded,) = fold(store, generation, [first])
    forget_cuts(store, generation, [second])
    assert cuts_of(store.records, generation) == [folded]
    forget_cuts(store, generation, [folded])
    assert cuts_of(store.records, generation) == []


def staged_dense(store, generation, made):
    """Returns how many of the dense blocks that a cut names are in the store."""
    places = list(made.dense_places)
    return sum(b is not None for b in store.staged(generation, made.dense_staged, places))


def test_a_cut_may_have_the_dense_weights_of_an_earlier_one(store, generation, tables):
    def next_cut(number, dense):
        some = change(tables[0].keys[: 100 * number].copy(), 4, number)
        return cut(store, generation, [(0, some)], dense, number)

    first = next_cut(1, DENSE)
    second = next_cut(2, first)
    third = next_cut(3, second)
    for later in (second, third):
        assert later.dense_version == first.version
        assert later.dense_places == first.dense_places
        assert later.dense_sha256 == first.dense_sha256
        assert later.all_places == later.places
        assert dense_of(store, generation, later) == DENSE
        assert sum(1 for _ in read_blocks(store, generation, later)) == len(later.places) + 3
    for made in (first, second, third):
        fold(store, generation, [made])
    for made in (first, second):
        forget_cuts(store, generation, [made])
        assert set(store.staged(generation, made.version, list(made.places))) == {None}
        assert dense_of(store, generation, cuts_of(store.records, generation)[-1]) == DENSE
    assert store.records.names("staging/") == []
    fourth = next_cut(4, third)
    assert fourth.dense_version == first.version
    fold(store, generation, [fourth])
    forget_cuts(store, generation, [third])
    assert staged_dense(store, generation, fourth) == 3
    fifth = next_cut(5, DENSE[:300])
    assert (fifth.dense_version, dense_of(store, generation, fifth)) == (0, DENSE[:300])
    fold(store, generation, [fifth])
    forget_cuts(store, generation, [fourth])
    assert staged_dense(store, generation, fourth) == 0, "the last record that named them is gone"
    assert store.records.names("staging/") == []


def test_dense_weights_of_a_forgotten_cut_survive_a_kill_while_it_is_forgotten(
    store, generation, monkeypatch
):
    first = cut(store, generation, [], DENSE, 1)
    second = cut(store, generation, [], first, 2)
    with monkeypatch.context() as killed:
        killed.setattr(store, "unstage", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            forget_cuts(store, generation, [first])
    assert len(store.records.names("staging/")) == 1
    discard_unfinished(store, generation)
    assert store.records.names("staging/") == []
    assert dense_of(store, generation, second) == DENSE
    forget_cuts(store, generation, [second])
    assert staged_dense(store, generation, second) == 0


def test_the_cut_with_the_same_dense_weights_must_exist(store, generation):
    bare = cut(store, generation, [], b"", 1)
    same = cut(store, generation, [], bare, 2)
    assert [(c.dense_places, c.dense_version) for c in (bare, same)] == [((), 0)] * 2
    first = cut(store, generation, [], DENSE, 3)
    forget_cuts(store, generation, [first])
    with pytest.raises(FailedPreconditionError, match="went back in time during the export"):
        cut(store, generation, [], first, 4)
    assert cuts_of(store.records, generation) == [bare, same]


def test_blocks_of_rows_are_read_as_they_lie_in_the_store_without_the_dense_ones(
    store, generation, tables
):
    made = cut(store, generation, [(0, change(tables[0].keys[:300].copy(), 4, 1))])
    blocks = list(row_block_bytes(store, generation, made))
    assert blocks == store.staged(generation, made.version, list(made.places))
    assert len(blocks) == len(made.places) == 16
    assert all(block.startswith(b"HRCB") for block in blocks)
    assert len(made.dense_places) == 3
    store.stage(generation, made.version, {made.places[5]: blocks[5][:-1]})
    with pytest.raises(DataLossError, match="is damaged"):
        list(row_block_bytes(store, generation, made))


def test_changes_that_come_in_pieces_are_one_block_a_table_and_shard(store, generation, tables):
    pieces = [(0, change(tables[0].keys[part:600:9].copy(), 4, part)) for part in range(9)]
    pieces += [(1, change(tables[1].keys[part:400:9].copy(), 16, part)) for part in range(9)]
    pieces.append((1, change(tables[1].keys[:0], 16, 1, removed=tables[1].keys[400:410])))
    made = cut(store, generation, pieces, dense=b"")
    assert (made.rows, made.removed, len(made.places)) == (1000, 10, 2 * 16)
    assert fold(store, generation, [made])[0].folded
    for number, piece in pieces:
        np.testing.assert_array_equal(store.read(generation, number, piece.keys)[0], piece.rows)
    assert store.read(generation, 1, tables[1].keys[400:410])[2].tolist() == [0] * 10


def test_a_cut_without_rows_or_without_dense_weights_has_no_blocks_of_them(store, generation):
    made = cut(store, generation, [])
    assert (made.places, made.rows) == ((), 0)
    assert dense_of(store, generation, made) == DENSE
    assert fold(store, generation, [made])[0].folded
    bare = cut(store, generation, [], dense=b"")
    assert bare.all_places == ()
    assert dense_of(store, generation, bare) == b""
    assert fold(store, generation, [bare])[0].folded


def test_a_cut_names_the_one_before_it_in_its_generation(store, generation, tables):
    first = cut(store, generation, [])
    with lock_exports(store.records, "m") as lock:
        other = write_generation(store, exported(2), tables, lock, shards=16)
    elsewhere = cut(store, other, [])
    second = cut(store, generation, [])
    assert [c.previous for c in (first, elsewhere, second)] == [0, 0, first.version]
    forget_cuts(store, generation, [first])
    assert cut(store, generation, []).previous == second.version


def test_forgetting_a_cut_that_is_interrupted_leaves_no_cut_without_blocks(
    store, generation, tables, monkeypatch
):
    made = cut(store, generation, [(0, change(tables[0].keys[:300].copy(), 4, 1))])

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(store), "unstage", killed)
        forget_cuts(store, generation, [made])
    assert cuts_of(store.records, generation) == []
    assert None not in store.staged(generation, made.version, list(made.all_places))
    discard_unfinished(store, generation)
    assert set(store.staged(generation, made.version, list(made.all_places))) == {None}
    assert store.records.names("staging/") == []


def test_cuts_are_folded_one_after_the_other_and_again_without_harm(store, generation, tables):
    keys = tables[0].keys[:300].copy()
    first = cut(store, generation, [(0, change(keys, 4, 1))], b"1")
    second = cut(store, generation, [(0, change(keys[100:], 4, 2))], b"2", step=9)
    assert second.version > first.version
    assert cuts_of(store.records, generation) == [first, second]
    with pytest.raises(EarlierRowsLostError, match="went back in time while step 9 was folded"):
        fold(store, generation, [second])
    assert (store.watermarks(generation) < first.version).all()
    fold(store, generation, [first])
    fold(store, generation, [second])
    fold(store, generation, [first])  # late: newer rows stay
    rows, versions, _ = store.read(generation, 0, keys)
    np.testing.assert_array_equal(rows[100:], change(keys[100:], 4, 2).rows)
    assert (versions[100:] == second.version).all()


def test_an_exporter_that_was_killed_leaves_no_cut_and_the_next_one_cleans_up(
    store, store_url, generation, tables, pytestconfig
):
    tests = str(pytestconfig.rootpath / "tests")
    child = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{EXPORT}", store_url],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(15):
        assert child.stdout.readline() == "part\n"
    child.kill()
    child.wait()
    child.stdout.close()
    assert cuts_of(store.records, generation) == []
    assert len(store.records.names("staging/")) == 1
    np.testing.assert_array_equal(store.read(generation, 0, tables[0].keys)[0], tables[0].rows)
    time.sleep(1.2)  # its lease ends
    made = cut(store, generation, [(0, change(tables[0].keys[:9].copy(), 4, 3))])
    assert store.records.names("staging/") == []
    assert cuts_of(store.records, generation) == [made]


def test_an_exporter_with_an_older_epoch_commits_nothing(store, generation, tables):
    def changes():
        yield 0, change(tables[0].keys[:9].copy(), 4, 3)
        Generations(store.records).next_epoch("m")  # as another exporter does

    with pytest.raises(FailedPreconditionError, match="another export has begun since"):
        cut(store, generation, changes())
    assert cuts_of(store.records, generation) == []
    discard_unfinished(store, generation)
    assert store.records.names("staging/") == []


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
def test_an_exporter_that_slept_before_it_staged_takes_its_blocks_back(
    store, generation, tables, monkeypatch, deleted
):
    staged = {}
    stage = type(store).stage

    def late(self, generation, version, blocks):
        if not staged:
            # Meanwhile another one has cleaned up, and perhaps deleted the generation.
            discard_unfinished(self, generation)
            if deleted:
                Generations(self.records).retire("m")
                delete_generation(self, Generations(self.records).get(generation.generation))
        staged.update(dict.fromkeys(blocks, version))
        stage(self, generation, version, blocks)

    monkeypatch.setattr(type(store), "stage", late)
    with pytest.raises(FailedPreconditionError, match="another export of the model took over"):
        cut(store, generation, [(0, change(tables[0].keys[:900].copy(), 4, 3))])
    assert staged
    assert cuts_of(store.records, generation) == []
    assert store.records.names("staging/") == []
    (version,) = set(staged.values())
    assert set(store.staged(generation, version, list(staged))) == {None}


def test_a_block_that_was_lost_or_changed_is_noticed(store, generation, tables):
    made = cut(store, generation, [(0, change(tables[0].keys[:50].copy(), 4, 3))])
    place = made.places[0]
    (block,) = store.staged(generation, made.version, [place])
    for wrong, said in (
        (block[:-1], "damaged"),
        (block[:30], "damaged|is cut"),
        (block[:40] + bytes([block[40] ^ 1]) + block[41:], "damaged"),
        (store.staged(generation, made.version, [made.places[1]])[0], "another cut or table"),
    ):
        store.stage(generation, made.version, {place: wrong})
        with pytest.raises(DataLossError, match=said):
            list(read_blocks(store, generation, made))
    forget_cuts(store, generation, [made])
    with pytest.raises(DataLossError, match="is missing"):
        list(read_blocks(store, generation, made))
    assert cuts_of(store.records, generation) == []


def test_a_shard_whose_watermark_went_back_is_folded_again(store, generation, tables):
    keys = tables[0].keys[:400].copy()
    made = cut(store, generation, [(0, change(keys, 4, 1))])
    fold(store, generation, [made])
    # What a failover does that loses the last writes of all shards.
    for piece in tables[0].pieces():
        store.write(generation, 0, *piece)
    store.set_markers(
        generation, [_native.record_digests(t.keys, t.rows, generation.shards) for t in tables]
    )
    assert (store.watermarks(generation) == generation.row_version).all()
    fold(store, generation, [made])
    np.testing.assert_array_equal(store.read(generation, 0, keys)[0], change(keys, 4, 1).rows)
    assert (store.watermarks(generation) == made.version).all()


def test_watermarks_only_go_up_and_need_a_marker(store, generation):
    base = generation.row_version
    store.set_watermarks(generation, base + 5, [0, 3])
    store.set_watermarks(generation, base + 2, [3, 4])
    marks = store.watermarks(generation)
    assert marks[[0, 3, 4, 5]].tolist() == [base + 5, base + 5, base + 2, base]
    store.delete_rows(generation)
    store.set_watermarks(generation, base + 9, [1])
    assert not store.watermarks(generation).any()
    assert store.missing_markers(generation) == list(range(16))


def test_cuts_go_with_their_generation(store, generation, tables):
    made = cut(store, generation, [(0, change(tables[0].keys[:50].copy(), 4, 3))])
    with lock_exports(store.records, "m") as lock:
        other = write_generation(store, exported(2), tables, lock, shards=16)
    make_live(store, other)
    delete_generation(store, generation)
    assert cuts_of(store.records, generation) == []
    places = list(made.all_places)
    assert store.staged(generation, made.version, places) == [None] * len(places)


def test_a_cut_that_is_folded_while_the_next_is_committed_does_not_keep_it(
    store, generation, tables, monkeypatch
):
    first = cut(store, generation, [(0, change(tables[0].keys[:50].copy(), 4, 1))], DENSE, 1)
    commit = Generations.commit
    tries = []

    def fold_first(*arguments):
        if not tries:
            fold(store, generation, [first])
        tries.append(commit(*arguments))
        return tries[-1]

    monkeypatch.setattr(Generations, "commit", fold_first)
    changes = [(0, change(tables[0].keys[:90].copy(), 4, 2))]
    with lock_exports(store.records, generation.model) as lock:
        write_cut(
            store, generation, lock, changes=changes, dense=first, step=2, clocks=[2], after=first
        )
    assert tries == [False, True]
    assert [made.folded for made in cuts_of(store.records, generation)] == [True, False]
