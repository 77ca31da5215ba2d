"""Cuts that a server refuses: metrics and health say so, until one is taken."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import CACHE, metrics, paused
from integration.serving.health_probe import READY, probe
from integration.serving.marked_rows import MarkedModel, cut_of
from integration.serving.metrics_page import samples_of
from integration.serving.server_processes import control_of
from waiting import wait_until

LABELS = 'model_name="m",version="1"'

Refusing = Callable[[Any, MarkedModel], AbstractContextManager[None]]


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    made = MarkedModel(tmp_path / "models", redis_server.url)
    yield made
    made.close()


@contextlib.contextmanager
def damaged(server: Any, model: MarkedModel) -> Iterator[None]:
    """Commits a cut whose weights are damaged in the store; then a whole one."""
    with paused(server):
        cut = model.write(2)
        place = cut.dense_places[0]
        (dense,) = model.store.staged(model.generation, cut.version, [place])
        assert dense is not None
        broken = dense[:100] + bytes([dense[100] ^ 1]) + dense[101:]
        model.store.stage(model.generation, cut.version, {place: broken})
    yield
    model.store.stage(model.generation, cut.version, {place: dense})


@contextlib.contextmanager
def full_disk(server: Any, model: MarkedModel) -> Iterator[None]:
    """Lets files of the control process have no more than 100 bytes."""
    control = control_of(server)
    soft, hard = resource.prlimit(control, resource.RLIMIT_FSIZE)
    resource.prlimit(control, resource.RLIMIT_FSIZE, (100, hard))
    model.write(2)
    yield
    resource.prlimit(control, resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def no_second_session(server: Any, model: MarkedModel) -> Iterator[None]:
    """Takes away the graph that the second session is loaded from."""
    graph = model.path / "1" / "saved_model.pb"
    graph.rename(model.path / "away")
    model.write(1)
    yield
    (model.path / "away").rename(graph)


@pytest.mark.parametrize(
    ("refusing", "first", "code", "reason"),
    [
        pytest.param(damaged, 1, "DATA_LOSS", "is damaged", id="damaged"),
        pytest.param(full_disk, 1, "RESOURCE_EXHAUSTED", "File too large", id="full disk"),
        pytest.param(
            no_second_session, 0, "NOT_FOUND", "Could not find SavedModel", id="no second session"
        ),
    ],
)
def test_a_refused_cut_is_seen_in_metrics_and_health_until_one_is_taken(
    refusing: Refusing,
    first: int,
    code: str,
    reason: str,
    model: MarkedModel,
    tmp_path: Path,
    start_server: Any,
) -> None:
    server = start_server("m", model.path, *CACHE, metrics(tmp_path))
    server.wait_ready()
    if first:
        model.wait_until_noted(model.write(first))
    assert samples_of(server).get(f"hotrow_cut_is_refused{{{LABELS}}}", 0) == 0
    with refusing(server, model):
        server.wait_for_log("is not taken: ")
        samples = samples_of(server)
        assert samples[f"hotrow_cut_is_refused{{{LABELS}}}"] == 1
        assert samples[f'hotrow_cut_failures_total{{{LABELS},code="{code}"}}'] >= 1
        wait_until(lambda: probe(server) != READY)
        status, body = probe(server)
        assert status == 200
        (said,) = body["models_without_their_newest_cut"].values()
        assert "is not taken: " in said
        assert reason in said
        assert cut_of(server) == first
        assert not any("unforeseen" in line for line in server.log)
    wait_until(lambda: cut_of(server) == first + 1)
    wait_until(lambda: samples_of(server)[f"hotrow_cut_is_refused{{{LABELS}}}"] == 0)
    wait_until(lambda: probe(server) == READY)


def test_a_version_loads_as_soon_as_a_damaged_cut_is_whole_again(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    model.wait_until_noted(model.write(1))
    with damaged(server, model):
        late = start_server("m", model.path, *CACHE)
        late.wait_for_log("m: version 1 failed to load (attempt not counted, next in 1 s): ")
        assert any("is damaged; the version loads after the next export" in s for s in late.log)
    late.wait_ready()
    assert cut_of(late) == 2
