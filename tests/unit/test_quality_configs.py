"""The configurations of benchmarks/quality.py, and the rows they are trained and reported on."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from hotrow.config import load_config

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "benchmarks/quality").glob("*.yaml"))


@pytest.fixture(scope="module")
def quality() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("quality", ROOT / "benchmarks/quality.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quality"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["quality"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configuration_is_valid(path: Path) -> None:
    assert load_config(path, []).model.arch in ("dlrm", "wide_deep")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_training_knows_no_validation_rows_and_a_fixed_length(path: Path) -> None:
    config = load_config(path, [])
    assert config.data.valid is None
    assert config.train.eval_every_steps is None
    assert config.train.max_steps is None


def test_every_case_has_its_configuration(quality: Any) -> None:
    assert sorted(config for config, _ in quality.CASES.values()) == CONFIGS


def test_first_rows_are_trained_and_the_rest_is_reported(quality: Any, tmp_path: Path) -> None:
    source = tmp_path / "rows.tsv.gz"
    source.write_bytes(gzip.compress(b"1\ta\n0\tb\n1\tc\n\n0\td"))
    train, report = quality.split_rows(source, 3, tmp_path)
    assert train.read_text() == "1\ta\n0\tb\n1\tc\n"
    assert report.read_text() == "0\td"


def test_missing_data_is_named(quality: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"rows\.gz is not there; set SHARED"):
        quality.split_rows(tmp_path / "rows.gz", 3, tmp_path)


def test_shared_data_gives_the_rows_of_the_issue(
    quality: Any, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "SHARED", shared)
    for split, rows in (
        (quality.split_criteo(tmp_path), (8_000, 2_000)),
        (quality.split_adult(tmp_path), (26_048, 6_513)),
    ):
        assert (
            tuple(len(path.read_text().splitlines()) for path in (split.train, split.report))
            == rows
        )
