"""Readers that keep cuts from being folded: for how long, who they are, and what ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from integration.store.trained_states import assert_folded, export, full_export, seen, state
from waiting import wait_until

from hotrow.cli.versions import command as versions
from hotrow.errors import FailedPreconditionError
from hotrow.hold_bounds import HoldBounds
from hotrow.store import open_store
from hotrow.store.cuts import cuts_of
from hotrow.store.readers import readers, use

SECONDS = HoldBounds(seconds=0.5, bytes=None)
# A reader of a generation that is stopped later: its lease is renewed until then.
HOLDER = """
import sys, time
from hotrow.store import open_store
from hotrow.store.readers import use
lease = use(open_store(sys.argv[1]).records, sys.argv[2], "server", float(sys.argv[3]))
print("has it", flush=True)
time.sleep(600)
"""


@pytest.fixture
def store(redis_server):
    with contextlib.closing(open_store(redis_server.url)) as store:
        yield store


@pytest.fixture
def generation(store):
    return full_export(store)


def staged(store, generation):
    return [cut for cut in cuts_of(store.records, generation) if not cut.folded]


@pytest.mark.parametrize("bound", ["seconds", "bytes"])
def test_a_forgotten_reader_keeps_cuts_from_being_folded_up_to_a_bound(bound, store, generation):
    bounds = SECONDS if bound == "seconds" else HoldBounds(seconds=None, bytes=4_000_000)
    with use(store.records, generation.generation, "notebook", follows_cuts=False) as notebook:
        first = export(store, generation, state(1), bounds=bounds)
        assert first.overruled == ()
        (hold,) = first.holds
        assert (hold.reader.holder, hold.cuts) == ("notebook", 1)
        assert hold.bytes == first.cut.bytes > 1_500_000
        assert seen(store, generation, up_to=generation.row_version) == (state(0)[0], 0)
        if bound == "seconds":
            time.sleep(0.6)
        later = [export(store, generation, state(n), bounds=bounds) for n in (2, 3)]
        assert [len(outcome.overruled) for outcome in later] == (
            [1, 0] if bound == "seconds" else [0, 1]
        )
        assert later[-1].holds == ()
        assert_folded(store, generation, state(3))
        # It learns of it, and stays overruled.
        notebook.look()
        with pytest.raises(FailedPreconditionError, match="bind the version again"):
            notebook.check_not_overruled()
        with pytest.raises(FailedPreconditionError, match="bind the version again"):
            notebook.note_cut(later[-1].cut.version)
        with use(store.records, generation.generation, "another", follows_cuts=False):
            held = export(store, generation, state(4), bounds=bounds)
            assert [hold.reader.holder for hold in held.holds] == ["another"]


def test_a_server_that_hangs_is_overruled_until_it_takes_a_cut(store, generation):
    with use(store.records, generation.generation, "server") as server:
        export(store, generation, state(1), bounds=SECONDS)
        time.sleep(0.6)
        outcome = export(store, generation, state(1), bounds=SECONDS)
        assert [hold.reader.holder for hold in outcome.overruled] == ["server"]
        assert_folded(store, generation, state(1))
        server.note_cut(outcome.cut.version)
        (reader,) = readers(store.records, generation.generation)
        assert reader.overruled == 0
        held = export(store, generation, state(2), bounds=SECONDS)
        assert [hold.reader.holder for hold in held.holds] == ["server"]


def test_a_server_that_is_stopped_keeps_nothing_when_its_lease_has_ended(
    store, generation, redis_server
):
    arguments = [sys.executable, "-c", HOLDER, redis_server.url, generation.generation, "1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "has it\n"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert export(store, generation, state(1)).holds
            wait_until(lambda: not readers(store.records, generation.generation))
            assert export(store, generation, state(1)).holds == ()
            assert_folded(store, generation, state(1))
        finally:
            process.kill()


def test_versions_shows_who_holds_up_folding_since_when_and_what_it_costs(
    store, generation, redis_server, capsys
):
    def shown():
        versions([redis_server.url], standalone_mode=False)
        lines = capsys.readouterr().out.splitlines()
        return next(line for line in lines if "read by notebook" in line)

    def shown_as_json():
        versions([redis_server.url, "--json", "-"], standalone_mode=False)
        (model,) = json.loads(capsys.readouterr().out)["models"]
        return model["versions"][0]["readers"][0]

    with use(store.records, generation.generation, "notebook", follows_cuts=False):
        assert "folded" not in shown()
        cut = export(store, generation, state(1)).cut
        assert "keeps 1 cut (1.5 MiB) from being folded since 20" in shown()
        held = shown_as_json()["holds"]
        assert (held["cuts"], held["bytes"]) == (1, cut.bytes)
        export(store, generation, state(2), bounds=HoldBounds(seconds=0))
        assert "overruled by an export" in shown()
        assert shown_as_json()["overruled"]
