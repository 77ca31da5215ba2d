"""Many cuts that are not folded: lookups probe few layers, and every answer is of one cut."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import layers_of, metrics
from integration.serving.marked_rows import MarkedModel, cut_of, marked_load, wait_until_answered
from integration.serving.server_processes import data_plane_of
from waiting import wait_until

CUTS = 40
FEW = 12


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    with contextlib.closing(MarkedModel(tmp_path / "models", redis_server.url)) as made:
        yield made


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_layers_are_merged_under_load_and_after_a_kill_and_go_when_they_are_folded(
    device: str,
    model: MarkedModel,
    start_server: Any,
    on_emulated_gpus: dict[str, str],
    tmp_path: Path,
) -> None:
    flags = ["--cache_rows=100", metrics(tmp_path)]
    if device == "gpu":
        flags += ["--cache_device=gpu", "--gpu_cache_bytes=1000000"]
    server = start_server(
        "m", model.path, *flags, variables=on_emulated_gpus if device == "gpu" else {}
    )
    server.wait_ready()
    with marked_load(server) as load:
        for number in range(1, CUTS + 1):
            cut = model.write(number)
            if number % 10 == 0:
                model.wait_until_noted(cut)
        load.wait_for(CUTS)
        wait_until(lambda: 0 < layers_of(server) <= FEW, lambda: layers_of(server))
    assert load.failures() == []
    assert cut_of(server) == CUTS
    os.kill(data_plane_of(server), signal.SIGKILL)
    wait_until_answered(server)
    assert cut_of(server) == CUTS
    wait_until(lambda: 0 < layers_of(server) <= FEW, lambda: layers_of(server))
    with marked_load(server) as load:
        model.fold()
        wait_until(lambda: layers_of(server) == 0)
        model.write(CUTS + 1)
        load.wait_for(CUTS + 1)
    assert load.failures() == []
    assert cut_of(server) == CUTS + 1
