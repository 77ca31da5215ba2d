"""Where hot rows are: in memory, or also on a GPU, as this machine has one or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import metrics
from integration.serving.metrics_page import samples_of
from integration.serving.trained_run import scores_of

CACHE = "--cache_bytes=10000000"


@pytest.fixture(scope="module")
def expected(trained: Path, start_shared_server: Any, tmp_path_factory: Any) -> list[float]:
    """The scores of a server without a cache."""
    server = start_shared_server("own", trained / "models" / "own")
    server.wait_ready()
    return scores_of(server, trained, tmp_path_factory.mktemp("expected"))


def gpu_samples(server: Any) -> dict[str, float]:
    """Returns the metrics of rows on a GPU, added up over tables."""
    sums: dict[str, float] = {}
    for name, value in samples_of(server).items():
        if name.startswith("hotrow_gpu_cache_"):
            short = name.partition("{")[0].removeprefix("hotrow_gpu_cache_")
            sums[short] = sums.get(short, 0) + value
    return sums


@pytest.mark.parametrize(("device", "gpu"), [("gpu", 0), ("gpu:3", 3)])
def test_a_gpu_that_is_not_there_is_refused_by_name(
    device: str, gpu: int, trained: Path, start_server: Any
) -> None:
    server = start_server("own", trained / "models" / "own", CACHE, f"--cache_device={device}")
    assert server.wait_exit() == 255
    assert server.log[-1].startswith(
        f"Failed to start server. Error: --cache_device={device}: a cache of rows on GPU {gpu}: "
    )


def test_auto_without_a_gpu_serves_from_memory_and_says_so(
    trained: Path, start_server: Any, expected: list[float], tmp_path: Path
) -> None:
    flags = (CACHE, "--cache_device=auto", metrics(tmp_path))
    server = start_server("own", trained / "models" / "own", *flags)
    server.wait_ready()
    server.wait_for_log("--cache_device=auto: rows stay in memory: ")
    assert scores_of(server, trained, tmp_path) == expected
    assert gpu_samples(server) == {}


def test_a_machine_with_a_gpu_serves_the_same(
    trained: Path,
    start_server: Any,
    on_emulated_gpus: dict[str, str],
    expected: list[float],
    tmp_path: Path,
) -> None:
    servers = {}
    # The last one: outputs on a GPU, rows in memory alone.
    for device in ("gpu:1", "gpu", "auto", "cpu"):
        folder = tmp_path / device.replace(":", "-")
        folder.mkdir()
        servers[device] = start_server(
            "own",
            trained / "models" / "own",
            *(CACHE, f"--cache_device={device}", metrics(folder)),
            variables=on_emulated_gpus,
        )
    for device, server in servers.items():
        server.wait_ready()
        folder = tmp_path / device.replace(":", "-")
        assert scores_of(server, trained, folder) == expected
        samples = gpu_samples(server)
        if device == "cpu":
            assert samples == {}
            continue
        assert samples["is_off"] == 0
        assert 0 < samples["bytes"] <= 10_000_000
        # Warm-up brought rows in. The emulated ops run on GPU 0.
        assert samples["rows"] > 100
        assert (samples.get("hits_total", 0) > 100) == (device == "gpu")


def test_a_gpu_beyond_those_of_the_machine_is_refused(
    trained: Path, start_server: Any, on_emulated_gpus: dict[str, str]
) -> None:
    flags = (CACHE, "--cache_device=gpu:2")
    server = start_server("own", trained / "models" / "own", *flags, variables=on_emulated_gpus)
    assert server.wait_exit() == 255
    assert server.log[-1] == (
        "Failed to start server. Error: --cache_device=gpu:2: a cache of rows on GPU 2: there are "
        "0 to 1"
    )
