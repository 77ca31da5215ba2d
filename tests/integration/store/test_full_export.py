"""Full exports on every store: whole, resumed, verified, live by one pointer, deleted."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from native_readers import native_readers
from stored_rows import ArrayRows, exported, float_rows, make_live, some_keys

from hotrow import _native
from hotrow.errors import DataLossError, FailedPreconditionError, NotFoundError
from hotrow.store import open_store
from hotrow.store.deletion import delete_generation, delete_model, delete_unneeded
from hotrow.store.full_export import write_generation
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use
from hotrow.store.spec import State

EXPORT = """
import sys, time
from stored_rows import ArrayRows, exported, float_rows, some_keys
from hotrow.store import open_store
from hotrow.store.full_export import write_generation
from hotrow.store.leases import lock_exports

class Slow(ArrayRows):
    def pieces(self):
        for piece in super().pieces():
            print("piece", flush=True)
            time.sleep(0.02)
            yield piece

store = open_store(sys.argv[1], create=True)
sources = [Slow(name, some_keys(4000), float_rows(4000, 4), pieces=20) for name in ("a", "b")]
with lock_exports(store.records, "m", seconds=1) as lock:
    write_generation(store, exported(), sources, lock, shards=16)
"""


def sources(seed=0):
    return [
        ArrayRows("a", some_keys(4000), float_rows(4000, 4, seed), pieces=20),
        ArrayRows("b", some_keys(4000), float_rows(4000, 4, seed), pieces=20),
    ]


def export(store, tables, what=None, report=lambda line: None):
    with lock_exports(store.records, "m") as lock:
        what = what or exported()
        generation = write_generation(store, what, tables, lock, shards=16, report=report)
        make_live(store, generation)
    return generation


def assert_holds(store, generation, tables):
    assert store.missing_markers(generation) == []
    for number, source in enumerate(tables):
        rows, versions, states = store.read(generation, number, source.keys)
        assert (states == 1).all()
        assert (versions == generation.row_version).all()
        np.testing.assert_array_equal(rows, source.rows)
        wanted = _native.record_digests(source.keys, source.rows, generation.shards)
        np.testing.assert_array_equal(store.digests(generation, number), wanted)


def test_an_export_is_complete_verified_and_live(store):
    tables = sources()
    generation = export(store, tables)
    assert generation.state is State.COMPLETE
    assert [t.rows for t in generation.tables] == [4000, 4000]
    assert generation.tables[0].digest == generation.tables[1].digest
    assert len(generation.tables[0].digest) == 32
    assert_holds(store, generation, tables)
    assert Generations(store.records).model("m").live == generation.generation
    assert store.records.names("progress/") == []
    assert store.records.names("export/") == []


@pytest.mark.parametrize(("growth", "planned", "slots"), [(1.0, 0, 0), (2.0, 65_536, 8 * 65_536)])
def test_a_server_has_room_for_the_rows_that_a_growing_table_may_get(
    tmp_path, growth, planned, slots
):
    with contextlib.closing(open_store(f"file://{tmp_path}", create=True)) as store:
        with lock_exports(store.records, "m") as lock:
            what = exported()
            generation = write_generation(
                store, what, sources()[:1], lock, shards=16, growth=growth
            )
        assert [table.planned_rows for table in generation.tables] == [planned]
    reader = _native.LmdbReader(str(tmp_path), generation.generation)
    cache = native_readers().HotRows(reader, rows=1 << 24)
    assert 0 <= cache.slots - (slots or 2 * 4000) <= 32


def test_each_export_has_newer_row_versions(store):
    first, second = export(store, sources()), export(store, sources(), exported(2))
    assert second.row_version > first.row_version
    assert second.number > first.number


@pytest.mark.parametrize("pieces", [1, 13, 25, 39])
def test_an_export_that_was_killed_is_resumed_and_nothing_is_live_before(
    store, store_url, pieces, pytestconfig
):
    tests = str(pytestconfig.rootpath / "tests")
    child = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{EXPORT}", store_url],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(pieces):
        assert child.stdout.readline() == "piece\n"
    child.kill()
    child.wait()
    child.stdout.close()
    generations = Generations(store.records)
    (unfinished,) = generations.all("m")
    assert unfinished.state is State.WRITING
    assert generations.model("m").live == ""
    with pytest.raises(FailedPreconditionError, match="not complete"):
        generations.make_live(unfinished, generations.model("m"))
    _wait_for_the_lock_to_end(store)
    tables, lines = sources(), []
    written = []
    store_write = store.write

    def write(*arguments):
        written.append(arguments)
        store_write(*arguments)

    store.write = write
    generation = export(store, tables, report=lines.append)
    assert generation.generation == unfinished.generation
    assert len(written) <= 45 - pieces  # a piece a table may be left over from whole pages
    if pieces > 2:
        assert lines[0] == f"resuming generation {unfinished.generation}"
    assert_holds(store, generation, tables)


def test_an_export_of_other_rows_starts_anew_and_the_unfinished_one_is_deleted(store):
    class Fails(ArrayRows):
        def pieces(self):
            yield next(super().pieces())
            raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        export(store, [Fails("a", some_keys(4000), float_rows(4000, 4))])
    generation = export(store, sources(1), exported(source="others"))
    assert len(Generations(store.records).all("m")) == 2
    with lock_exports(store.records, "m"):
        (deleted,) = delete_unneeded(store, "m", keep=2)
    assert deleted.generation != generation.generation
    assert [g.generation for g in Generations(store.records).all("m")] == [generation.generation]
    assert store.records.names("progress/") == []
    assert_holds(store, generation, sources(1))


class TamperedOnce(ArrayRows):
    """Rows of which some are changed in the store after they were written, so many times."""

    def __init__(self, *arguments, times, **options):
        super().__init__(*arguments, **options)
        self.times = times
        self.store = None

    def pieces(self):
        yield from super().pieces()
        if self.times > 0:
            self.times -= 1
            (generation,) = Generations(self.store.records).all("m")
            row = np.zeros((1, self.rows.shape[1]), np.uint8)
            self.store.set_markers(generation, [np.zeros((16, 3), np.uint64)])
            newer = np.array([generation.row_version + 1], np.uint64)
            assert self.store.put(generation, 0, self.keys[:1], row, newer) == 1


def test_a_shard_that_holds_other_rows_is_written_again(store):
    table = TamperedOnce("a", some_keys(500), float_rows(500, 4), times=2)
    table.store = store
    lines = []
    generation = export(store, [table], report=lines.append)
    assert lines.count("table a: 1 shards differ and are written again") == 2
    assert_holds(store, generation, [table])


def test_a_store_that_keeps_holding_other_rows_fails_the_export(store):
    table = TamperedOnce("a", some_keys(500), float_rows(500, 4), times=1000)
    table.store = store
    with pytest.raises(DataLossError, match="table a: 1 shards hold other rows than were written"):
        export(store, [table])
    assert Generations(store.records).model("m").live == ""


def test_an_export_whose_lock_was_lost_stops(store):
    class Robbed(ArrayRows):
        def pieces(self):
            for number, piece in enumerate(super().pieces()):
                if number == 2:
                    text = store.records.get("export/m")
                    until = json.loads(text)["until"] + 60_000
                    thief = json.dumps({"holder": "thief", "until": until})
                    assert store.records.swap("export/m", text, thief)
                    assert lock.lost.wait(10)
                yield piece

    table = Robbed("a", some_keys(4000), float_rows(4000, 4), pieces=20)
    with (
        lock_exports(store.records, "m", seconds=0.5) as lock,
        pytest.raises(FailedPreconditionError, match="export/m was lost: another process took it"),
    ):
        write_generation(store, exported(), [table], lock, shards=16)


def test_the_live_generation_cannot_be_deleted(store):
    first, second = export(store, sources()), export(store, sources(1), exported(2))
    with pytest.raises(FailedPreconditionError, match="is live"):
        delete_generation(store, second)
    assert_holds(store, second, sources(1))
    assert_holds(store, first, sources())


def test_a_model_is_deleted_whole_unless_a_server_uses_it(store):
    made = [export(store, sources(seed), exported(seed + 1)) for seed in range(2)]
    generations = Generations(store.records)
    gone = []
    with (
        use(store.records, made[0].generation, "server-7"),
        lock_exports(store.records, "m"),
        pytest.raises(FailedPreconditionError, match=r"in use by server-7; end these"),
    ):
        delete_model(store, "m", gone.append)
    assert gone == []
    assert_holds(store, made[0], sources(0))
    assert generations.model("m").live == made[1].generation
    before = generations.model("m")
    with lock_exports(store.records, "m"):
        delete_model(store, "m", gone.append)
    assert [g.generation for g in gone] == [g.generation for g in made]
    assert generations.all() == []
    # A later export of the model is still newer than all that were.
    after = generations.model("m")
    assert (after.live, after.previous, after.token) == ("", "", before.token)
    with lock_exports(store.records, "m"), pytest.raises(NotFoundError, match="its models: none"):
        delete_model(store, "m", gone.append)
    export(store, sources(3), exported(3))
    again = generations.model("m")
    assert (again.epoch, again.seq) > (before.epoch, before.seq)


def test_old_generations_go_when_no_server_uses_them(store):
    made = [export(store, sources(seed), exported(seed + 1)) for seed in range(4)]
    with use(store.records, made[0].generation, "server"), lock_exports(store.records, "m"):
        deleted = delete_unneeded(store, "m", keep=2)
    assert [g.generation for g in deleted] == [made[1].generation]
    with pytest.raises(NotFoundError, match=made[1].generation):
        Generations(store.records).get(made[1].generation)
    assert_holds(store, made[0], sources(0))
    with lock_exports(store.records, "m"):
        deleted = delete_unneeded(store, "m", keep=2)
    assert [g.generation for g in deleted] == [made[0].generation]
    for seed in (2, 3):
        assert_holds(store, made[seed], sources(seed))


def test_a_deletion_that_was_broken_off_is_finished_by_the_next(store):
    first, second = export(store, sources()), export(store, sources(1), exported(2))
    third = export(store, sources(2), exported(3))
    Generations(store.records).begin_deleting(first)  # and there it ended
    with pytest.raises(FailedPreconditionError, match="is deleting"):
        Generations(store.records).complete(first, first.tables)
    with lock_exports(store.records, "m"):
        assert len(delete_unneeded(store, "m", keep=2)) == 1
    left = [g.generation for g in Generations(store.records).all("m")]
    assert left == [second.generation, third.generation]


def _wait_for_the_lock_to_end(store):
    text = store.records.get("export/m")
    while text is not None and json.loads(text)["until"] > store.records.now_ms():
        time.sleep(0.05)
