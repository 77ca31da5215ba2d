"""Layers whose tables have their cache on a GPU do what layers in RAM do, bit for bit.

There is no GPU here: the package is laid out anew, its core and its TensorFlow ops linked with the
emulator of ops/native/tests/simt in place of CUDA. No Python of the package differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from emulated_package import lay_out_emulated

import hotrow
from hotrow.config import RunConfig, parse_config
from hotrow.errors import FailedPreconditionError, HotrowError, InvalidArgumentError
from hotrow.trainer.trained_run import load_run

PROGRAM = Path(__file__).with_name("gpu_layers_program.py")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the package over emulated libraries."""
    return lay_out_emulated(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="module")
def results(
    emulated: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Returns what the program did and said, without and with caches on a GPU."""
    processes = {}
    for device, package in (("cpu", Path(hotrow.__file__).parents[1]), ("gpu", emulated)):
        folder = tmp_path_factory.mktemp(device)
        command = [sys.executable, str(PROGRAM), device, str(folder)]
        environment = {**os.environ, "PYTHONPATH": str(package)}
        with (folder / "errors.txt").open("w") as errors:
            started = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        processes[device] = folder, started
    answers = {}
    for device, (folder, process) in processes.items():
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, (folder / "errors.txt").read_text()[-8000:]
        answers[device] = folder, json.loads(output.splitlines()[-1])
    return answers


@pytest.mark.parametrize(
    "case",
    [
        "eager",
        "compiled",
        "fit",
        "accumulated",
        "clipped",
        "used twice",
        "eager, in backward",
        "fit, in backward",
        "clipped, in backward",
        "saved and restored",
        "exported",
        "a run of the command",
    ],
)
def test_a_layer_over_a_gpu_does_what_one_in_memory_does(results: Any, case: str) -> None:
    assert results["gpu"][1][case] == results["cpu"][1][case]


def test_nothing_else_was_printed(results: Any) -> None:
    assert results["gpu"][1] == results["cpu"][1]


def test_the_norm_that_clips_is_small_enough_to_clip(results: Any) -> None:
    answers = results["cpu"][1]
    assert answers["clipped"]["tables"] != answers["compiled"]["tables"]


def test_a_run_on_a_gpu_is_loaded_where_there_is_none(results: Any) -> None:
    folder, answers = results["gpu"]
    run = load_run(folder / "run")
    assert run.config.cache.device == "gpu"
    tables = {name: [t.digest(), t.step] for name, t in run.model.tables().items()}
    assert tables == answers["a run of the command"]["tables"]


@pytest.mark.parametrize("device", ["gpu", "gpu:3"])
def test_without_a_gpu_a_table_says_so_and_what_to_do(device: str) -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU here")
    table = hotrow.TableConfig("t", 4, cache=hotrow.Cache(rows=100, device=device))
    wanted = rf"table 't': .*'{device}'.*Cache\(device='cpu'\)"
    with pytest.raises(FailedPreconditionError, match=wanted):
        hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)])


@pytest.mark.parametrize("device", ["GPU", "gpu:", "gpu:-1", "gpu:01", "cuda", "", 0, None])
def test_a_device_that_is_none_is_refused_by_name(device: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Cache.device is .*'cpu', 'gpu' or 'gpu:N'"):
        hotrow.Cache(rows=100, device=device)


def test_a_device_has_its_number() -> None:
    devices = ("cpu", "gpu", "gpu:0", "gpu:12")
    numbers = [hotrow.Cache(rows=1, device=device).gpu for device in devices]
    assert numbers == [None, 0, 0, 12]


def test_rows_on_disk_need_a_cache_in_memory() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Cache.disk is '/d'; .* GPU"):
        hotrow.Cache(rows=100, device="gpu", disk="/d")


def configuration(cache: dict[str, Any]) -> RunConfig:
    return parse_config(
        {
            "name": "small",
            "data": {"format": "csv", "train": "t.csv"},
            "features": {"sparse": {"columns": ["a"], "dim": 4}},
            "model": {"arch": "wide_deep"},
            "cache": cache,
        }
    )


def test_a_configuration_puts_caches_on_a_gpu() -> None:
    cache = configuration({"rows": 100, "device": "gpu:1"}).cache.as_spec()
    assert cache == hotrow.Cache(rows=100, device="gpu:1")


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ({"device": "gpu"}, "device is 'gpu' without a cache"),
        ({"rows": 9, "device": "tpu"}, "Cache.device is 'tpu'"),
        ({"rows": 9, "device": "gpu", "disk": "/d"}, "rows on disk need one in RAM"),
    ],
)
def test_a_wrong_device_in_a_configuration_is_refused(cache: dict[str, Any], message: str) -> None:
    with pytest.raises(HotrowError, match=message):
        configuration(cache)


def test_a_saved_layer_keeps_the_device() -> None:
    table = hotrow.TableConfig("t", 4, cache=hotrow.Cache(rows=100, device="gpu:1"))
    assert hotrow.spec.table_from_dict(hotrow.spec.table_to_dict(table)) == table
