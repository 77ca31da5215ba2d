"""The example of docs/configuration.md: it validates and trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import hotrow
from hotrow.cli.main import main
from hotrow.config import load_config
from hotrow.trainer.data import BatchStream

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ONLINE = 'online:   {source: "redis://...", publish_seconds: 1}\n'
EXAMPLE = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0] + ONLINE


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The example, and the data that it names."""
    path = tmp_path / "criteo.yaml"
    path.write_text(EXAMPLE)
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
    assert config.online.model_dump(exclude_unset=True) == {
        "source": "redis://...",
        "publish_seconds": 1,
    }


def test_the_example_trains_and_learns(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
