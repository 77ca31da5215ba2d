"""`train` with any cache, prefetching and warm-up ends with the run without them, bit for bit."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow.cli.inspection_text import details
from hotrow.config import RunConfig, parse_config
from hotrow.errors import HotrowError
from hotrow.ops.table import Table
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.data import BatchStream
from hotrow.trainer.loop import train
from hotrow.trainer.models import build_model
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.run_inspection import inspect_checkpoint
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.trained_run import load_run
from hotrow.trainer.warm_up import warm_up

ROWS, BATCH, VOCABULARY = 2400, 32, 20_000
STEPS = 2 * ROWS // BATCH
# Smaller than the distinct keys; what ratios below 2.6 % of this vocabulary come to.
SLOTS = 512


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of skewed integer keys whose label they determine."""
    path = tmp_path_factory.mktemp("data") / "train.csv"
    rng = np.random.default_rng(4)
    keys = (VOCABULARY * rng.random((ROWS, 3)) ** 4).astype(np.int64)
    labels = (keys.sum(axis=1) + rng.integers(0, 9, ROWS)) % 3 == 0
    lines = [f"{int(y)},{u},{i},{c}" for y, (u, i, c) in zip(labels, keys, strict=True)]
    path.write_text("\n".join(["label,u,i,c", *lines]) + "\n")
    return path


def configuration(file: Path, **sections: Any) -> RunConfig:
    values: dict[str, Any] = {
        "name": "cached",
        "seed": 3,
        "data": {"format": "csv", "train": str(file), "batch_size": BATCH},
        "features": {
            "sparse": [
                {"columns": ["u", "i"], "dim": 4, "hash": False, "table": "ids"},
                {"columns": ["c"], "dim": 4, "hash": False},
            ]
        },
        "tables": {"default": {"vocabulary_size": VOCABULARY, "optimizer": "adam"}},
        "model": {"arch": "wide_deep", "hidden": [8]},
        "train": {"epochs": 2, "shuffle_buffer": 700},
    }
    return parse_config(values | sections)


class Silent:
    def add(self, rows: int) -> None:
        pass


@contextlib.contextmanager
def no_progress(rows: int) -> Iterator[Silent]:
    yield Silent()


def state_of(run_dir: Path) -> tuple[dict[str, tuple[str, int]], list[bytes]]:
    model = load_run(run_dir).model
    tables = {name: (table.digest(), table.step) for name, table in model.tables().items()}
    return tables, [variable.numpy().tobytes() for variable in model.dense_variables()]


class KeysOfBatches:
    """The distinct keys of table "ids" in each batch of a run, and the hits that they allow."""

    def __init__(self, config: RunConfig) -> None:
        self.batches = [
            np.unique(np.concatenate([batch.sparse[name].keys for name in ("u", "i")]))
            for epoch in range(config.train.epochs)
            for batch in BatchStream(
                config.data.train, config, shuffle_seed=config.seed, epoch=epoch
            )
        ]
        self.total = sum(map(len, self.batches))
        self.keys, counts = np.unique(np.concatenate(self.batches), return_counts=True)
        self._counts = np.sort(counts)[::-1]

    @property
    def most(self) -> float:
        """The hit rate if a key misses only when it gets its row."""
        return 1 - len(self.keys) / self.total

    def most_in(self, slots: int) -> float:
        """The hit rate of the most frequent rows, if they alone were kept."""
        return float((self._counts[:slots] - 1).sum() / self.total)

    def of_lru(self, slots: int) -> float:
        """The hit rate of a fully associative LRU cache."""
        kept: dict[int, None] = {}
        hits = 0
        for batch in self.batches:
            for key in batch.tolist():
                hits += key in kept
                kept.pop(key, None)
                kept[key] = None
            for key in list(kept)[: max(0, len(kept) - slots)]:
                del kept[key]
        return hits / self.total


@pytest.fixture(scope="module")
def keys(file: Path) -> KeysOfBatches:
    return KeysOfBatches(configuration(file))


@pytest.fixture(scope="module")
def plain(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Any]:
    """The run without a cache: its result and what it ended with."""
    run_dir = tmp_path_factory.mktemp("plain") / "run"
    return train(configuration(file), run_dir), state_of(run_dir)


@pytest.mark.parametrize(
    ("ratio", "prefetch", "more"),
    [
        (0.001, 1, {"policy": "lru"}),
        (0.1, 32, {"warmup": 1}),
        slow(0.001, 0, {"warmup": 0}),
        slow(0.001, 32, {}),
        slow(0.01, 8, {"warmup_batches": 3}),
        slow(1.0, 8, {}),
        slow(0.001, 0, {"disk": "lines"}),
        (0.001, 8, {"disk": "lines", "policy": "lru"}),
    ],
)
def test_a_run_with_a_cache_is_the_run_without(
    file: Path,
    tmp_path: Path,
    plain: Any,
    keys: KeysOfBatches,
    ratio: float,
    prefetch: int,
    more: dict[str, Any],
) -> None:
    result, state = plain
    cache = {"ratio": ratio, "prefetch": prefetch, **more}
    if "disk" in more:
        cache["disk"] = str(tmp_path)
    cached = train(configuration(file, cache=cache), tmp_path / "run")
    assert state_of(tmp_path / "run") == state
    assert (cached.steps, cached.train, cached.rows) == (STEPS, result.train, result.rows)
    assert result.tables == {}
    assert cached.tables.keys() == {"ids", "c", "u/wide", "i/wide", "c/wide"}
    statistics = cached.tables["ids"]
    assert statistics["rows"] > 2 * SLOTS
    assert statistics["cache_slots"] >= max(SLOTS, ratio * VOCABULARY)
    # Rows that are prefetched too late hit no less often than without prefetching.
    least = keys.of_lru(int(statistics["cache_slots"])) - 0.02
    assert least < statistics["cache_hit_rate"] < keys.most + 1e-9
    assert statistics["cache_stall_ms"] > 0
    # With more slots than rows only what a full set gave up comes in again.
    assert ratio >= 0.1 or (statistics["cache_rows_prefetched"] > 0) == (prefetch > 0)


def hit_rate(config: RunConfig, run_dir: Path) -> float:
    return float(train(config, run_dir).tables["ids"]["cache_hit_rate"])


def test_the_policy_sets_which_rows_hit(file: Path, tmp_path: Path, keys: KeysOfBatches) -> None:
    alone = {"prefetch": 0, "warmup": 0}
    lru, lfu, whole = (
        hit_rate(configuration(file, cache=alone | cache), tmp_path / str(number))
        for number, cache in enumerate(
            [{"rows": SLOTS, "policy": "lru"}, {"rows": SLOTS}, {"rows": VOCABULARY}]
        )
    )
    assert lru == pytest.approx(keys.of_lru(SLOTS), abs=0.02)
    assert keys.of_lru(SLOTS) + 0.05 < lfu < keys.most_in(SLOTS)
    assert whole == pytest.approx(keys.most)


def test_prefetched_rows_hit(
    file: Path, tmp_path: Path, keys: KeysOfBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefetch = Table.prefetch

    def in_time(table: Table, window: np.ndarray) -> None:
        prefetch(table, window)
        table.wait_for_prefetch()

    monkeypatch.setattr(Table, "prefetch", in_time)
    cache = {"rows": SLOTS, "policy": "lru", "prefetch": 1, "warmup": 0}
    rate = hit_rate(configuration(file, cache=cache), tmp_path / "run")
    assert rate == pytest.approx(keys.most)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"rows": SLOTS, "prefetch": 8}),
        ({"rows": SLOTS, "prefetch": 4}, {}),
        slow({"rows": SLOTS}, {"ratio": 0.2, "policy": "lru", "prefetch": 0}),
        ({"rows": SLOTS, "disk": "."}, {"rows": 2 * SLOTS, "disk": "."}),
        slow({"rows": SLOTS, "disk": "."}, {}),
    ],
    ids=[
        "with a cache from now on",
        "without one from now on",
        "with another",
        "from disk to disk",
        "from disk to memory",
    ],
)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(STEPS // 2, id="between epochs", marks=pytest.mark.slow),
        pytest.param(110, id="in epoch 2"),
    ],
)
def test_a_run_may_go_on_with_another_cache(
    file: Path,
    tmp_path: Path,
    plain: Any,
    first: Any,
    second: Any,
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, state = plain
    monkeypatch.chdir(tmp_path)
    short = {"epochs": 2, "shuffle_buffer": 700, "max_steps": steps}
    train(configuration(file, cache=first, train=short), tmp_path / "run")
    resumed = train(configuration(file, cache=second), tmp_path / "run", resume=True)
    assert resumed.train == result.train
    assert state_of(tmp_path / "run") == state
    assert bool(resumed.tables) == bool(second)


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_checkpoints_and_validation_between_windows_change_nothing(
    file: Path, tmp_path: Path, plain: Any, on_disk: bool
) -> None:
    disk = {"disk": str(tmp_path)} if on_disk else {}
    often = configuration(
        file,
        cache={"rows": SLOTS, "prefetch": 8, **disk},
        data={"format": "csv", "train": str(file), "valid": str(file), "batch_size": BATCH},
        train={"epochs": 2, "shuffle_buffer": 700, "eval_every_steps": 31},
        checkpoint={"every_steps": 7, "full_every": 3, "keep": 2},
    )
    train(often, tmp_path / "run")
    assert state_of(tmp_path / "run") == plain[1]


def test_a_directory_that_is_not_there_is_reported_in_one_line(file: Path, tmp_path: Path) -> None:
    cache = {"rows": SLOTS, "disk": str(tmp_path / "nowhere")}
    with pytest.raises(HotrowError, match="nowhere") as raised:
        train(configuration(file, cache=cache), tmp_path / "run")
    assert "\n" not in str(raised.value)
    with pytest.raises(HotrowError, match=r"disk is .* without a cache"):
        configuration(file, cache={"disk": str(tmp_path)})


def test_warm_up_reads_the_next_batches_and_fills_its_share(file: Path, tmp_path: Path) -> None:
    cache = {"rows": SLOTS, "warmup": 0.5, "warmup_batches": 10}
    config = configuration(file, cache=cache, train={"epochs": 1, "max_steps": 60})
    fresh = build_model(config)
    assert set(warm_up(fresh, config, Position()).values()) == {0}  # rows come with training
    assert all(table.size == 0 for table in fresh.tables().values())
    train(config, tmp_path / "run")
    model = load_run(tmp_path / "run").model
    came_in = warm_up(model, config, Position(60, 0, 60))
    assert 0.4 * SLOTS < came_in["ids"] <= 0.55 * SLOTS
    at_end = Position(75, 0, 75)
    assert warm_up(model, config, at_end) == dict.fromkeys(came_in, 0)
    for off in ({"rows": SLOTS, "warmup": 0}, {"warmup": 1}):
        assert warm_up(model, configuration(file, cache=off), Position()) == {}


def test_statistics_are_reported_and_kept(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = {"rows": SLOTS, "prefetch": 4}
    result = train(configuration(file, cache=cache), tmp_path / "run")
    last = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "tables"][-1]
    assert last["ids/cache_rows_prefetched"] == result.tables["ids"]["cache_rows_prefetched"] > 0
    assert last["ids/cache_hit_rate"] == result.tables["ids"]["cache_hit_rate"]
    line = capsys.readouterr().err.splitlines()[-1]
    assert "cache: hit rate" in line
    assert "rows prefetched, stall" in line
    newest = CheckpointDirectory(tmp_path / "run" / "checkpoints", 1)
    (step,) = newest.steps()
    shown = inspect_checkpoint(newest.of_step(step), ["ids"], no_progress)
    text = "\n".join(details(shown.tables[0], 80, blocks=False))
    assert f"cache since the process began: {SLOTS} slots, hit rate " in text
    again = train(configuration(file, cache=cache), tmp_path / "run", resume=True)
    assert math.isnan(again.tables["ids"]["cache_hit_rate"])  # nothing was left to train
    assert (
        json.loads(json.dumps(again.as_dict(), allow_nan=False))["tables"]["ids"]
        | {"cache_hit_rate": None}
        == again.as_dict()["tables"]["ids"]
    )


def test_a_key_out_of_range_is_reported_by_its_step(file: Path, tmp_path: Path) -> None:
    small = {"default": {"vocabulary_size": 19_000, "optimizer": "adam"}}
    cache = {"rows": SLOTS, "prefetch": 8, "warmup": 0}
    lines = []
    for name, more in (("plain", {}), ("cached", {"cache": cache})):
        config = configuration(file, tables=small, **more)
        with pytest.raises(
            HotrowError, match=r"^step \d+: table (ids|c).*vocabulary_size"
        ) as raised:
            train(config, tmp_path / name)
        lines.append(str(raised.value))
    assert lines[0] == lines[1]
    warmed = configuration(file, tables=small, cache={"rows": SLOTS})
    with pytest.raises(HotrowError, match="vocabulary_size") as raised:
        train(warmed, tmp_path / "warmed")
    assert "\n" not in str(raised.value)
