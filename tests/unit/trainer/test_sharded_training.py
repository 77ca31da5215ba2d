"""With `data.order: sharded` each rank reads its own part of the files; the data are the same."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import numpy as np
import pytest
from unit.trainer.ranked_training import (
    BATCH,
    ROWS,
    SHARDINGS,
    config_of,
    losses,
    newest,
    rows_of,
    slow,
    train_on,
    write_files,
)

from hotrow.config import parse_config
from hotrow.errors import FailedPreconditionError, InvalidArgumentError
from hotrow.ops.ranks import thread_ranks
from hotrow.trainer import epoch_stream
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.checkpoint.array_file import read_arrays
from hotrow.trainer.data import DataError
from hotrow.trainer.data.shards import Shard
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.train_step import make_forward
from hotrow.trainer.trained_run import load_run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows as one file of text, and as three compressed files of other sizes."""
    folder = write_files(tmp_path_factory.mktemp("data"))
    lines = (folder / "train.tsv").read_text().splitlines(keepends=True)
    for name, start, stop in (("a", 0, 200), ("b", 200, 310), ("c", 310, ROWS)):
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress("".join(lines[start:stop]).encode()))
    return folder


@pytest.fixture(scope="module")
def alone(files, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    (result,) = train_on(1, config_of(files), run)
    return run, result


def sharded(files, ranks, sharding="mixed", **sections):
    data = {"order": "sharded", **sections.pop("data", {})}
    return config_of(files, ranks, sharding, data=data, **sections)


def trained(ranks, config, run, resume=False):
    results = train_on(ranks, config, run, resume)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def counts_of(run):
    """Returns how often training has looked up each key."""
    return {key: count for key, (_, _, count) in rows_of(run).items()}


def compressed(files, names="abc"):
    return {"train": [str(files / f"{name}.tsv.gz") for name in names]}


@pytest.mark.parametrize(
    ("ranks", "sharding", "data"),
    [
        (2, "mixed", {}),
        (3, "mixed otherwise", "abc"),
        slow(4, "mixed", {}),
        slow(4, "mixed", "abc"),  # a rank has no row
        *(slow(2, sharding, "abc") for sharding in SHARDINGS),
    ],
)
def test_ranks_train_every_row_once_an_epoch(files, alone, tmp_path, ranks, sharding, data):
    data = compressed(files, data) if data else {}
    model = {"batch_norm": True} if ranks == 3 else {}
    config = sharded(files, ranks, sharding, data=data, model=model)
    results = trained(ranks, config, tmp_path / "run")
    for result in results:
        assert (result.train.rows, result.valid.rows) == (ROWS, 70)
        assert result.rows == alone[1].rows
        assert result.train == results[0].train
        assert result.valid == results[0].valid
    assert counts_of(tmp_path / "run") == counts_of(alone[0])
    # Other batches than those of one process, from as good a model.
    assert result.train.logloss == pytest.approx(alone[1].train.logloss, rel=0.1)


def test_validation_is_that_of_one_process(files, tmp_path):
    config = sharded(files, 2)
    result, _ = trained(2, config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    single = evaluate_file(make_forward(run.model, run.config), run.config, config.data.valid)
    assert result.valid.auc == single.auc
    assert result.valid.logloss == pytest.approx(single.logloss, rel=1e-6)
    assert result.valid.rows == single.rows


@pytest.mark.parametrize("data", ["", slow("abc")])
@pytest.mark.parametrize("shuffle", [True, slow(False)])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(files, tmp_path, data, shuffle):
    data = compressed(files, data) if data else {}
    train = {"shuffle": shuffle}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trained(2, sharded(files, 2, data=data, train=train), whole)
    for stop in (4, 13, None):
        config = sharded(files, 2, data=data, train={**train, "max_steps": stop})
        trained(2, config, parts, resume=stop != 4)
    one, other = rows_of(whole), rows_of(parts)
    assert one.keys() == other.keys()
    for key, (weights, clock, count) in one.items():
        assert (clock, count) == other[key][1:]
        np.testing.assert_array_equal(weights, other[key][0])
    mine, theirs = (read_arrays(newest(run) / "model.safetensors") for run in (whole, parts))
    for name, values in mine.items():
        np.testing.assert_array_equal(values, theirs[name])
    assert losses(whole, "valid").items() <= losses(parts, "valid").items()  # and at the stops


@pytest.mark.parametrize(
    "legs",
    [((3, 4), (2, None)), slow(((1, 4), (3, None))), slow(((3, 3), (1, 5), (2, 7), (2, None)))],
    ids=str,
)
def test_a_run_continues_on_other_ranks_with_the_rows_that_are_left(files, alone, tmp_path, legs):
    run = tmp_path / "run"
    for number, (ranks, stop) in enumerate(legs):
        config = sharded(files, ranks, train={"max_steps": stop})
        results = trained(ranks, config, run, resume=number > 0)
        if stop is not None:
            position = json.loads((newest(run) / "manifest.json").read_text())["position"]
            assert position["step"] == stop
            before = [(r, s) for r, s in legs[:number] if r != ranks]
            assert [ranks for ranks, _ in position.get("legs", [])] == [r for r, _ in before]
    assert results[0].train.rows == ROWS
    assert counts_of(run) == counts_of(alone[0])


def test_the_record_of_a_position_is_that_of_older_versions_without_legs():
    assert Position(7, 1, 3).as_json() == {"step": 7, "epoch": 1, "batch": 3}
    assert Position.of_json({"step": 7, "epoch": 1, "batch": 3}) == Position(7, 1, 3)
    later = Position(7, 1, 3).after(2)
    assert later == Position(7, 1, 3, ((2, 3),))
    assert later.after(4) == later  # 4 ranks have read nothing
    assert Position.of_json(json.loads(json.dumps(later.as_json()))) == later


def test_a_run_keeps_its_order(files, tmp_path):
    trained(2, sharded(files, 2, train={"max_steps": 2}), tmp_path / "run")
    results = train_on(2, config_of(files, 2, "mixed"), tmp_path / "run", resume=True)
    for result in results:
        assert isinstance(result, InvalidArgumentError)
        assert "data.order: the run in" in str(result)


def test_a_malformed_line_ends_all_ranks_with_its_number(files, tmp_path):
    lines = (files / "train.tsv").read_text().splitlines()
    lines[300] = "broken"
    (tmp_path / "broken.tsv").write_text("\n".join(lines))
    config = sharded(files, 2, data={"train": str(tmp_path / "broken.tsv")})
    results = train_on(2, config, tmp_path / "run")
    assert [type(result).__name__ for result in results] == [type(results[0]).__name__] * 2
    assert str(results[0]) == str(results[1])
    assert "broken.tsv: line 301" in str(results[0])


def test_malformed_lines_of_all_ranks_are_reported_together(files, tmp_path, capsys):
    lines = (files / "train.tsv").read_text().splitlines()
    lines[20] = lines[300] = lines[301] = "broken"
    (tmp_path / "broken.tsv").write_text("\n".join(lines))
    data = {"train": str(tmp_path / "broken.tsv"), "on_malformed": "skip"}
    results = trained(2, sharded(files, 2, data=data), tmp_path / "run")
    assert results[0].train.rows == ROWS - 3
    assert capsys.readouterr().err.count("3 malformed lines, the first is line 21") == 2


@pytest.mark.parametrize("positive", ["ok", "maybe"])
def test_labels_are_judged_over_all_ranks(tmp_path, positive):
    rows = [f"{'no' if i < 300 else 'ok'},{i % 7}" for i in range(400)]  # rank 0 has no ok
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["label,x", *rows]))
    config = parse_config(
        {
            "name": "labels",
            "data": {
                "format": "csv",
                "train": str(path),
                "batch_size": BATCH,
                "positive": positive,
                "order": "sharded",
            },
            "features": {"sparse": {"columns": ["x"], "dim": 2}},
            "model": {"arch": "logistic"},
        }
    )

    def read(rank):
        stream = epoch_stream.epoch_stream(config, rank)
        assert sum(batch.size for batch in takewhile(lambda batch: batch.size, stream)) == 200
        try:
            return epoch_stream.left_out(stream, config, rank).count
        except DataError as err:
            return str(err)

    message = (
        f"{path}: no label is 'maybe' in 400 rows; set data.positive (--positive) to the text "
        "that means 1"
    )
    assert on_ranks(2, read) == [0 if positive == "ok" else message] * 2


def on_ranks(count, work):
    """Returns what `work` returned on each rank."""
    with ThreadPoolExecutor(count) as pool:

        def call(rank):
            with rank:
                return work(rank)

        return list(pool.map(call, thread_ranks(count, 60.0)))


def test_more_ranks_than_rows_of_a_batch_are_refused(files, tmp_path):
    results = train_on(3, sharded(files, 3, data={"batch_size": 2}), tmp_path / "run")
    for result in results:
        assert isinstance(result, InvalidArgumentError)
        assert "data.batch_size is 2; each of 3 ranks" in str(result)


def test_ranks_that_find_other_files_are_refused(files, tmp_path, monkeypatch):
    divide = epoch_stream.shards_of
    calls = []

    def other(paths, count):
        found = divide(paths, count)
        calls.append(None)
        return found if len(calls) > 1 else [Shard(s.number, s.pieces[:-1]) for s in found]

    monkeypatch.setattr(epoch_stream, "shards_of", other)
    for result in train_on(2, sharded(files, 2), tmp_path / "run"):
        assert isinstance(result, FailedPreconditionError)
        assert "the ranks read different files: those of rank 1" in str(result)


def test_steps_of_all_ranks_end_together(files, tmp_path):
    """The last batches have the rows of the rank that has more."""
    config = sharded(files, 2, data=compressed(files, "ab"), train={"epochs": 1})
    results = trained(2, config, tmp_path / "run")
    assert [result.steps for result in results] == [-(-200 // (BATCH // 2))] * 2
    assert results[0].train.rows == 310
    assert [r["step"] for r in read_metrics(tmp_path / "run") if r["kind"] == "valid"][-1] == 13
