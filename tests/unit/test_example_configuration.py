"""The example of docs/configuration.md: it validates; what is built of it trains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hotrow
from hotrow.cli.main import main
from hotrow.config import load_config
from hotrow.config.section import Section
from hotrow.config.unbuilt import OnlineConfig
from hotrow.trainer.data import BatchStream

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ONLINE = 'online:   {source: "redis://...", publish_seconds: 1}\n'
EXAMPLE = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0] + ONLINE

UNBUILT: dict[str, type[Section]] = {
    "online": OnlineConfig,
}
# A legal value that is not the default, for every key of these sections and of others.
OTHER_VALUES = {
    "online.source": "redis://localhost:6379",
    "online.publish_seconds": "2.5",
}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The example without its line online, and the data that it names."""
    lines = [line for line in EXAMPLE.splitlines() if line.split(":")[0] not in UNBUILT]
    path = tmp_path / "criteo.yaml"
    path.write_text("\n".join(lines) + "\n")
    rows = ["--rows", "9000", "--valid-rows", "1000", "--keys", "1000"]
    files = [str(tmp_path / "train.tsv.gz"), "--valid-out", str(tmp_path / "valid.tsv.gz")]
    assert main(["data", "generate", *files, *rows]) == 0
    return path


def test_the_whole_example_validates_and_every_value_arrives(tmp_path: Path) -> None:
    path = tmp_path / "criteo.yaml"
    path.write_text(EXAMPLE)
    config = load_config(path)
    assert (config.name, config.seed) == ("criteo-dlrm", 2026)
    assert (config.data.format, config.data.batch_size) == ("criteo", 4096)
    assert config.data.train == str(tmp_path / "train.tsv.gz")
    assert config.data.valid == str(tmp_path / "valid.tsv.gz")
    assert [(c.name, c.transform) for c in config.features.dense_columns()] == [
        ("I1", "log"),
        ("I2", "log"),
    ]
    assert [(c.name, c.dim, c.hash) for c in config.features.sparse_columns()] == [
        ("C1", 16, True),
        ("C2", 16, True),
    ]
    for column in ("C1", "C2"):
        table = config.table_settings(column)
        assert (table.optimizer, table.learning_rate) == ("adagrad", 0.05)
        assert table.initializer.uniform == 0.05
    assert config.model.model_dump(include={"arch", "bottom", "top"}) == {
        "arch": "dlrm",
        "bottom": (128, 64, 16),
        "top": (256, 128),
    }
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("adam", 0.001)
    assert config.cache.model_dump(exclude_unset=True) == {
        "rows": 1_000_000,
        "policy": "lfu",
        "prefetch": 8,
        "warmup": 0.7,
    }
    assert config.cache.as_spec() == hotrow.Cache(rows=1_000_000, policy="lfu")
    parallel = config.parallel.model_dump(exclude_unset=True)
    assert parallel == {"workers": 1, "sharding": "auto", "staleness": 0}
    assert (config.checkpoint.every_steps, config.checkpoint.keep) == (5000, 3)
    assert config.online.model_dump() == {"source": "redis://...", "publish_seconds": 1.0}


def test_the_whole_example_is_refused_by_its_first_part_that_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "criteo.yaml").write_text(EXAMPLE)
    result = subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", "train", "criteo.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == (
        "Error: online.source: redis://... is legal, but this part is not built yet; leave it out\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["criteo.yaml"]


def test_the_example_without_these_parts_trains_and_learns(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run = built.parent / "run"
    assert main(["train", str(built), "--run-dir", str(run), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 3  # 9,000 rows in batches of 4,096
    assert set(result["rows"]) == {"C1", "C2"}
    assert all(rows > 0 for rows in result["rows"].values())
    config = load_config(built)
    stream = BatchStream(config.data.train, config, shuffle_seed=config.seed)
    batches = [batch.sparse for batch in stream]
    for name, metrics in result["tables"].items():
        assert metrics["cache_slots"] >= 1_000_000
        assert metrics["cache_rows_prefetched"] == 0  # the file is one window
        # The cache has room for all rows: a key misses when it gets its row.
        distinct = sum(len(np.unique(batch[name].keys)) for batch in batches)
        assert metrics["cache_hit_rate"] == pytest.approx(1 - metrics["rows"] / distinct)
    assert 0 < result["valid_logloss"] < 0.6931  # better than a coin
    assert (run / "config.yaml").is_file()
    assert list((run / "checkpoints").iterdir())


def test_every_key_of_the_parts_that_are_not_built_is_tried() -> None:
    keys = {f"{name}.{key}" for name, part in UNBUILT.items() for key in part.model_fields}
    assert keys == set(OTHER_VALUES)


@pytest.mark.parametrize(("key", "value"), OTHER_VALUES.items(), ids=OTHER_VALUES)
def test_another_value_than_the_default_is_refused_by_name(
    built: Path, capsys: pytest.CaptureFixture[str], key: str, value: str
) -> None:
    capsys.readouterr()
    run = built.parent / "run"
    assert main(["train", str(built), "--run-dir", str(run), "--set", f"{key}={value}"]) == 2
    assert capsys.readouterr().err == (
        f"Error: {key}: {value} is legal, but this part is not built yet; leave it out\n"
    )
    assert not run.exists()


def test_the_parts_that_are_not_built_may_have_their_defaults(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written out, the defaults are no error: the run starts, here up to its first step."""
    defaults = [
        f"{name}.{key}={'' if field.default is None else field.default}"
        for name, part in UNBUILT.items()
        for key, field in part.model_fields.items()
    ]
    options = [word for value in defaults for word in ("--set", value)]
    run = built.parent / "run"
    one_step = ["--set", "train.max_steps=1"]
    assert main(["train", str(built), "--run-dir", str(run), *one_step, *options]) == 0
    assert "not built" not in capsys.readouterr().err
