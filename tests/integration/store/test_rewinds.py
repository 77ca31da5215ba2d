"""Exports onto a Redis that went back in time: what was lost comes again, or is asked for."""

from __future__ import annotations

import json

import pytest
from integration.store.trained_states import (
    RUN,
    assert_folded,
    changes_of,
    export,
    full_export,
    roll_back,
    seen,
    state,
)
from waiting import wait_until

from hotrow.errors import DataLossError, FailedPreconditionError, UnavailableError
from hotrow.lineage import Lineage, Start
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import cuts_of, read_blocks
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import export_changes
from hotrow.store.leases import lock_exports
from hotrow.store.lost_cuts import withdraw_rowless
from hotrow.store.published import PublishedLog
from hotrow.store.readers import use


@pytest.fixture
def store(redis, open_redis):
    return open_redis(redis.url)


@pytest.fixture
def generation(store):
    return full_export(store)


@pytest.fixture
def exporter(store, generation, tmp_path):
    """Exports a state as one exporter does, `exporter(number)`; it remembers what it published."""

    def run(number, lineage=RUN, remembers=True, undo_cuts=0):
        path = tmp_path / "published-1.json" if remembers else None
        lines = []
        with lock_exports(store.records, "m") as lock:
            outcome = export_changes(
                store,
                Generations(store.records).get(generation.generation),
                lock,
                changes_of(state(number), lineage=lineage),
                wait_seconds=0,
                undo_cuts=undo_cuts,
                report=lines.append,
                published=PublishedLog(path, generation.generation),
            )
        return outcome, lines

    return run


def test_numbers_and_identities_never_come_again(redis, store, generation):
    snapshot = redis.snapshot()

    def next_ones():
        generations = Generations(store.records)
        record = generations.next_epoch("m")
        return store.records.next_number(), record.epoch, record.seq, record.token

    before = [next_ones() for _ in range(5)]
    redis.go_back(snapshot)
    after = [next_ones() for _ in range(5)]
    numbers = [number for number, *_ in before + after]
    assert numbers == sorted(set(numbers))
    tokens = [(epoch, seq) for _, epoch, seq, _ in before + after]
    assert tokens == sorted(set(tokens))
    assert len({token for *_, token in before + after}) == 10
    assert generation.number < numbers[0]


def test_a_cut_goes_above_what_shards_and_servers_know(store, generation):
    generations = Generations(store.records)
    far = generations.next_epoch("m").epoch + 1000 << 40
    store.set_watermarks(generation, far, [3])
    assert generations.next_epoch("m", far).epoch == far >> 40


@pytest.mark.parametrize("back_to", ["before the cut", "before its fold"])
@pytest.mark.parametrize("next_state", [2, 3])
def test_a_cut_that_was_lost_is_exported_again(
    redis, store, exporter, back_to, next_state, generation
):
    exporter(1)
    snapshot = redis.snapshot()
    with use(store.records, generation.generation, "slow", seconds=60):
        lost = exporter(2)[0].cut  # not folded
        if back_to == "before its fold":
            snapshot = redis.snapshot()
    exporter(2)
    assert_folded(store, generation, state(2))
    redis.go_back(snapshot)
    outcome, lines = exporter(next_state)
    said = [line for line in lines if "has lost step 102" in line]
    assert bool(said) == (back_to == "before the cut")
    assert outcome.committed == (back_to == "before the cut" or next_state == 3)
    assert outcome.cut.version > lost.version or not outcome.committed
    forget_leases(store, generation)
    exporter(next_state)
    assert_folded(store, generation, state(next_state))


def test_an_export_that_the_store_goes_back_under_commits_nothing_that_misses_a_cut(
    redis, store, exporter, generation, monkeypatch
):
    """It has read from which cut the changes go on; the store has lost that cut at the commit."""
    exporter(1)
    snapshot = redis.snapshot()
    exporter(2)
    next_epoch = Generations.next_epoch

    def late(*arguments):
        monkeypatch.undo()
        redis.go_back(snapshot)
        return next_epoch(*arguments)

    monkeypatch.setattr(Generations, "next_epoch", late)
    with pytest.raises(FailedPreconditionError, match="went back in time during the export"):
        exporter(3)
    assert [cut.step for cut in cuts_of(store.records, generation)] == [101]
    _, lines = exporter(3)
    assert any("has lost step 102" in line for line in lines)
    exporter(3)
    assert_folded(store, generation, state(3))


def test_a_cut_goes_above_what_was_published_while_a_clock_was_ahead(redis, exporter, tmp_path):
    snapshot = redis.snapshot()
    exporter(1)
    path = tmp_path / "published-1.json"
    published = json.loads(path.read_text())
    ahead = published["cuts"][-1]["version"] + (1 << 40)  # an hour later
    published["cuts"][-1]["version"] = ahead
    path.write_text(json.dumps(published))
    redis.go_back(snapshot)
    outcome, _ = exporter(2)
    assert outcome.cut.version > ahead


def forget_leases(store, generation):
    for name in store.records.names(f"lease/{generation.generation}/"):
        store.records.swap(name, store.records.get(name), None)


def test_an_exporter_that_remembers_nothing_finds_it_by_a_server_s_lease(
    redis, store, exporter, generation
):
    snapshot = redis.snapshot()
    cut = exporter(1)[0].cut
    redis.go_back(snapshot)
    with use(store.records, generation.generation, "server") as server:
        server.note_cut(cut.version, identity=cut.identity, step=cut.step, lineage=cut.lineage)
        other = Lineage((Start("run", 0), Start("again", 100)))
        with pytest.raises(FailedPreconditionError, match=r"the store has lost.*full export"):
            exporter(2, lineage=other, remembers=False)
        assert cuts_of(store.records, generation) == []
        outcome, lines = exporter(2, remembers=False)
        assert any("has lost step 101" in line for line in lines)
        assert outcome.committed
        assert outcome.cut.version > cut.version
        assert seen(store, generation) == (state(2)[0], 2)


def test_a_training_that_did_not_go_on_from_what_was_lost_is_refused(redis, exporter):
    snapshot = redis.snapshot()
    exporter(2)
    redis.go_back(snapshot)
    other = Lineage((Start("run", 0), Start("again", 101)))
    with pytest.raises(
        FailedPreconditionError, match=r"step 102 \(in a cut that the store has lost"
    ):
        exporter(3, lineage=other)
    with pytest.raises(FailedPreconditionError, match="make a full export"):
        exporter(1)
    assert exporter(3)[0].committed


def test_each_cut_that_was_lost_is_one_that_the_training_went_on_from(redis, exporter, log):
    """A killed trainer published the first one; its successor may have known the keys of it."""
    snapshot = redis.snapshot()
    lost = exporter(2)[0].cut
    version = {"epoch": lost.epoch, "seq": lost.seq + 1}
    log.append(lost.model_copy(update={"lineage": "again", "identity": "newer", **version}))
    redis.go_back(snapshot)
    other = Lineage((Start("run", 0), Start("again", 101)))
    with pytest.raises(FailedPreconditionError, match="cut that the store has lost"):
        exporter(3, lineage=other)


def test_rows_of_a_rollback_that_was_lost_are_exported_again(store, generation, exporter, log):
    """Servers may show it: they have the rows of the state before the newest cut."""
    before = exporter(1)[0].cut
    last = exporter(2)[0].cut
    rollback = {"step": before.step, "clocks": before.clocks, "identity": "rollback"}
    log.append(last.model_copy(update={"epoch": last.epoch, "seq": last.seq + 1, **rollback}))
    cut = exporter(3)[0].cut
    blocks = read_blocks(store, generation, cut, cut.places)
    keys = {int(key) for block in blocks for key in block.keys}
    rows, clocks, _ = state(3)
    assert keys >= {key for key in rows if clocks[key] > before.clocks[0]}


def test_a_cut_that_only_shards_know_asks_for_a_full_export(store, exporter, generation):
    exporter(1)
    (cut,) = cuts_of(store.records, generation)
    store.set_watermarks(generation, cut.version + 1000, [5])
    with pytest.raises(FailedPreconditionError, match=r"has lost cut .*make a full export"):
        exporter(2)
    assert store.records.names("staging/") == []


def test_a_store_that_has_lost_a_cut_is_rolled_back_after_an_export(
    redis, store, exporter, generation, log
):
    """Servers keep rows of the lost cut in their caches, and a rollback would not replace them."""
    exporter(1, undo_cuts=3)
    snapshot = redis.snapshot()
    lost = exporter(2, undo_cuts=3)[0].cut
    redis.go_back(snapshot)
    (before,) = cuts_of(store.records, generation)
    with pytest.raises(FailedPreconditionError, match=f"has lost cut {lost.version:016x}"):
        roll_back(store, generation, generation.row_version, published=log)
    assert cuts_of(store.records, generation) == [before]
    exporter(3, undo_cuts=3)
    roll_back(store, generation, before.version, published=log)
    assert_folded(store, generation, state(1))


@pytest.fixture
def rows_went_back(redis, store, exporter, generation):
    """Three cuts of which the rows of the newer two are lost; records are those of before.

    A replica of the rows took over that was behind.
    """
    exporter(1)
    snapshot = redis.snapshot()
    exporter(2)
    exporter(3)
    with redis.client() as client:
        records = client.dump("hotrow:{hr}")
    redis.go_back(snapshot)
    with redis.client() as client:
        client.restore("hotrow:{hr}", 0, records, replace=True)
    assert (store.watermarks(generation) < cuts_of(store.records, generation)[0].version).all()


@pytest.fixture
def log(tmp_path, generation):
    return PublishedLog(tmp_path / "published-1.json", generation.generation)


# From the first of the three cuts another training went on.
OTHER = Lineage((Start("run", 0), Start("again", 101)))


@pytest.mark.usefixtures("rows_went_back")
def test_shards_that_lost_rows_of_several_cuts_get_all_of_them_again(
    store, exporter, generation, log
):
    with (
        lock_exports(store.records, "m") as lock,
        pytest.raises(DataLossError, match=r"lost rows of earlier exports.*make a full export"),
    ):
        withdraw_rowless(store, generation, lock, log, OTHER, print)
    outcome, lines = exporter(3)
    assert any("went back in time and have lost rows" in line for line in lines)
    assert outcome.committed
    exporter(3)
    assert_folded(store, generation, state(3))


@pytest.mark.usefixtures("rows_went_back")
def test_a_store_that_has_lost_rows_of_cuts_is_not_rolled_back(store, generation, log):
    with pytest.raises(FailedPreconditionError, match="has lost rows of earlier exports"):
        roll_back(store, generation, generation.row_version, published=log)


@pytest.mark.usefixtures("rows_went_back")
def test_a_training_whose_exporter_knows_the_keys_of_other_cuts_goes_on(store, generation, log):
    first, *others = log.states()
    with lock_exports(store.records, "m") as lock:
        for known in ([], others[:1]):
            names = {one.identity for one in known}
            with pytest.raises(DataLossError):
                withdraw_rowless(store, generation, lock, log, OTHER, print, lambda n=names: n)
        names = {one.identity for one in others}
        base = withdraw_rowless(store, generation, lock, log, OTHER, print, lambda: names)
        assert base == first.model_copy(update={"norms": base.norms})
        assert cuts_of(store.records, generation) == []


@pytest.mark.usefixtures("rows_went_back")
def test_rows_that_a_rollback_took_back_are_exported_again(store, generation, log):
    """The newest cut has the rows of an earlier state, and so the clocks of that state."""
    *_, last = cuts_of(store.records, generation)
    version = {"epoch": last.epoch, "seq": last.seq + 1}
    log.append(last.model_copy(update={"clocks": (0,), **version}))
    with lock_exports(store.records, "m") as lock:
        base = withdraw_rowless(store, generation, lock, log, RUN, print)
    assert base.identity == log.states()[0].identity
    assert base.clocks == (0,)


@pytest.mark.usefixtures("rows_went_back")
def test_what_was_published_too_long_ago_to_be_remembered_asks_for_a_full_export(
    store, generation, log, monkeypatch
):
    """Another start of the training may have published what its successors do not have."""
    monkeypatch.setattr("hotrow.store.published._MOST_STATES", 2)
    log.append(cuts_of(store.records, generation)[-1])  # of the same number: nothing is older
    assert not log.is_whole
    resumed = Lineage((*RUN.starts, Start("again", 103)))
    with lock_exports(store.records, "m") as lock:
        with pytest.raises(DataLossError):
            withdraw_rowless(store, generation, lock, log, resumed, print)
        base = withdraw_rowless(store, generation, lock, log, RUN, print)
    assert base.version == 0


def test_a_log_of_a_newer_version_is_said_to_be_that(tmp_path):
    path = tmp_path / "published-1.json"
    path.write_text('{"format": 2}')
    with pytest.raises(FailedPreconditionError, match=r"record format 2, this one reads up to 1"):
        PublishedLog(path, "g").states()
    path.write_text("no json")
    assert PublishedLog(path, "g").states() == []


def test_a_cut_is_committed_when_replicas_have_it(redis, redis_servers, open_redis, monkeypatch):
    monkeypatch.setattr("hotrow.store.redis.replicas._WAIT_MS", 1000)
    replica = redis_servers.standalone(settings={"replicaof": f"127.0.0.1 {redis.port}"})
    store = open_redis(redis.url, StoreAccess(wait_replicas=1))
    generation = full_export(store)
    wait_until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
    assert export(store, generation, state(1)).committed
    replica.kill()
    said = r"0 replicas of 127.0.0.1:\d+ have .* --store_wait_replicas asks for 1"
    with pytest.raises(UnavailableError, match=said):
        export(store, generation, state(2))
    assert [cut.step for cut in cuts_of(store.records, generation)] == [101]
    replica.restart()
    assert export(store, generation, state(2)).committed
    assert_folded(store, generation, state(2))
