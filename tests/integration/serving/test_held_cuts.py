"""Servers whose cuts wait for a reader, and a server that others do not wait for any more."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import metrics, paused
from integration.serving.marked_rows import MarkedModel, cut_of, marked_load
from integration.serving.metrics_page import samples_of
from integration.serving.server_processes import control_of
from waiting import wait_until

from hotrow.hold_bounds import HoldBounds
from hotrow.store.cuts import cuts_of
from hotrow.store.readers import readers, use

LABELS = '{model_name="m",version="1"}'
AT_ONCE = HoldBounds(seconds=0)


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    with contextlib.closing(MarkedModel(tmp_path / "models", redis_server.url)) as model:
        yield model


def test_a_reader_that_holds_up_cuts_shows_in_metrics_until_it_is_overruled(
    model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, "--cache_rows=10000", metrics(tmp_path))
    server.wait_ready()

    def unfolded() -> list[float]:
        samples = samples_of(server)
        names = ("hotrow_unfolded_cuts", "hotrow_unfolded_cut_bytes", "hotrow_unfolded_cut_seconds")
        # A server that is ready may not have looked for cuts yet.
        return [samples.get(f"{name}{LABELS}", -1.0) for name in names]

    wait_until(lambda: unfolded() == [0, 0, 0])
    records, name = model.store.records, model.generation.generation
    with marked_load(server) as load, use(records, name, "notebook", follows_cuts=False):
        written = [model.write(number) for number in (1, 2, 3)]
        load.wait_for(3)
        model.fold_taken(undo_cuts=0)
        wait_until(lambda: unfolded()[0] == 3)
        assert unfolded()[1] == sum(cut.bytes for cut in written) > 0
        wait_until(lambda: unfolded()[2] >= 1)  # whole seconds
        wait_until(lambda: written[2].version in model.noted())
        model.fold_taken(undo_cuts=0, bounds=AT_ONCE)
        assert [cut.folded for cut in cuts_of(records, model.generation)] == [True]
        wait_until(lambda: unfolded() == [0, 0, 0])
    assert load.failures() == []
    assert cut_of(server) == 3


def test_cuts_do_not_wait_for_a_control_process_that_was_killed(
    model: MarkedModel, start_server: Any
) -> None:
    """Its lease would last for 30 s."""
    server = start_server("m", model.path, "--cache_rows=10000")
    other = start_server("m", model.path, "--cache_rows=10000")
    for one in (server, other):
        one.wait_ready()
    model.wait_until_noted(model.write(1), servers=2)
    os.kill(control_of(server), signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    cut = model.write(2)
    wait_until(lambda: model.noted() == [cut.version] * 2, model.noted, 10)
    model.fold_taken(undo_cuts=0)
    assert [cut.folded for cut in cuts_of(model.store.records, model.generation)] == [True]


def test_a_server_that_hangs_is_overruled_and_mixes_nothing(
    model: MarkedModel, start_server: Any, tmp_path: Path
) -> None:
    server = start_server("m", model.path, "--cache_rows=100", metrics(tmp_path))
    server.wait_ready()
    assert cut_of(server) == 0
    with marked_load(server) as load:
        with paused(server):  # its lease goes on for 30 s
            for number in (1, 2):
                model.write(number)
            model.fold_taken(undo_cuts=0)
            records = model.store.records
            assert [cut.folded for cut in cuts_of(records, model.generation)] == [False, False]
            model.fold_taken(undo_cuts=0, bounds=AT_ONCE)
            assert [cut.folded for cut in cuts_of(records, model.generation)] == [True]
            (reader,) = readers(records, model.generation.generation)
            assert reader.overruled > reader.cut
            wait_until(lambda: bool(load.failures()))
        load.wait_for(2)
        wait_until(lambda: readers(records, model.generation.generation)[0].overruled == 0)
    assert load.cuts() <= {0, 2}
    assert all("rows of a cut that is not taken yet" in text for text in load.failures())
    assert cut_of(server) == 2
    wait_until(lambda: samples_of(server).get(f"hotrow_server_overruled_total{LABELS}") == 1)
    samples = samples_of(server)
    assert samples[f"hotrow_cut_gaps_total{LABELS}"] == 1
    assert samples[f"hotrow_cuts_taken_total{LABELS}"] == 1
