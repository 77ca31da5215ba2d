"""Training on ranks that keep rows of each other (`parallel.staleness`): ranks are threads."""

from __future__ import annotations

import pytest
from criteo_files import write_criteo
from unit.trainer.ranked_training import config_of, rows_of, train_on

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.run_directory import read_metrics


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_criteo(folder / "train.tsv", 330, 0, values=40)
    write_criteo(folder / "valid.tsv", 70, 1, values=40)
    return folder


def stale_config(files, ranks, staleness, **sections):
    train = {"eval_every_steps": None, **sections.pop("train", {})}
    parallel = {"sharding": "row", "staleness": staleness, "replica_ratio": 1.0}
    return config_of(files, ranks, parallel=parallel, train=train, **sections)


def good(results):
    for result in results:
        assert not isinstance(result, BaseException), result
    return results[0]


def row_bytes(run):
    (*_, last) = (r for r in read_metrics(run) if r["kind"] == "ranks")
    return last["rows/bytes"] + last["gradients/bytes"]


def lookups(run):
    return {key: count for key, (_, _, count) in rows_of(run).items()}


def test_lagging_rows_save_bytes_and_lose_no_update(files, tmp_path):
    found = {}
    checkpoint = {"every_steps": 1000}  # each sends everything
    long = {"epochs": 8, "eval_every_steps": 1000}  # rows lag once they have many updates
    for staleness in (0, 20):
        run = tmp_path / str(staleness)
        config = stale_config(files, 3, staleness, checkpoint=checkpoint, train=long)
        found[staleness] = good(train_on(3, config, run))
    exact, lagging = found[0], found[20]
    assert lagging.rows == exact.rows
    # Every lookup of every key was sent to its owner in the end.
    assert lookups(tmp_path / "20") == lookups(tmp_path / "0")
    assert row_bytes(tmp_path / "20") < 0.7 * row_bytes(tmp_path / "0")
    assert lagging.valid.auc == pytest.approx(exact.valid.auc, abs=0.1)
    assert lagging.valid.logloss == pytest.approx(exact.valid.logloss, rel=0.1)


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("sgd", "rowwise_adagrad", "ftrl")),
    ],
)
def test_every_optimizer_takes_sums_of_lagging_rows(files, tmp_path, optimizer):
    tables = {"default": {"optimizer": optimizer, "learning_rate": 0.02}}
    result = good(train_on(2, stale_config(files, 2, 3, tables=tables), tmp_path / "run"))
    assert 0 < result.valid.logloss < 1


@pytest.mark.slow
def test_a_run_whose_rows_lag_continues_on_other_ranks(files, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    good(train_on(2, stale_config(files, 2, 4), whole))
    good(train_on(2, stale_config(files, 2, 4, train={"max_steps": 9}), run))
    done = good(train_on(3, stale_config(files, 3, 4), run, resume=True))
    assert done.steps == 22
    assert lookups(run) == lookups(whole)


def test_what_does_not_go_with_lagging_rows_is_refused_by_name(files, tmp_path):
    config = stale_config(files, 2, 4, embeddings={"global_clipnorm": 1.0})
    (first, *_) = train_on(2, config, tmp_path / "run")
    assert isinstance(first, InvalidArgumentError)
    assert "has staleness, which goes with update='backward'" in str(first)
