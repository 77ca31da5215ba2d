"""Several ranks train one model as if they were one: here ranks are threads of this process.

Most runs have a table of each sharding, `MIXED`; a run of each sharding alone is slow.
"""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from unit.trainer import ranked_training
from unit.trainer.ranked_training import (
    COLUMNS,
    SHARDINGS,
    assert_same_losses,
    assert_same_model,
    config_of,
    newest,
    slow,
    train_on,
    write_files,
)

import hotrow
from hotrow.errors import DataLossError
from hotrow.ops.table import Table
from hotrow.trainer.checkpoint.exported import note_exported
from hotrow.trainer.checkpoint.table_files import RowFiles
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.trained_run import load_run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def alone(files, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    (result,) = train_on(1, config_of(files), run)
    return run, result


@pytest.mark.parametrize(
    ("ranks", "sharding"),
    [
        (2, "mixed"),
        slow(3, "auto"),
        *(slow(2, sharding) for sharding in SHARDINGS),
        slow(3, "row"),
        slow(4, "column"),
        slow(4, "mixed otherwise"),
    ],
)
def test_ranks_train_what_one_process_trains(files, alone, tmp_path, ranks, sharding):
    config = config_of(files, ranks, sharding=sharding)
    results = train_on(ranks, config, tmp_path / "run")
    run, expected = alone
    for result in results:
        assert not isinstance(result, BaseException), result
        assert (result.steps, result.rows) == (expected.steps, expected.rows)
        assert result.train.auc == pytest.approx(expected.train.auc, abs=1e-4)
        assert result.valid_logloss == pytest.approx(expected.valid_logloss, rel=1e-6)
    assert_same_losses(tmp_path / "run", run)
    assert_same_model(tmp_path / "run", run)
    (stages,) = [r for r in read_metrics(tmp_path / "run") if r["kind"] == "ranks"][-1:]
    assert results[0].ranks == ranks
    assert any(key.endswith("/bytes") and stages[key] > 0 for key in stages)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        slow((1, "mixed"), (3, "mixed otherwise")),
        ((2, "mixed otherwise"), (3, "mixed")),
        slow((3, "mixed"), (1, "mixed")),
        slow((2, "row"), (2, "row")),
        slow((1, "row"), (3, "row")),
        slow((3, "row"), (1, "row")),
        slow((3, "column"), (2, "column")),
        slow((2, "column"), (3, "row")),
        slow((3, "row"), (2, "column")),
        slow((2, "replicated"), (3, "table")),
        slow((3, "table"), (2, "replicated")),
    ],
    ids=lambda way: f"{way[0]} ranks by {way[1]}",
)
@pytest.mark.parametrize("full_every", [slow(1), 3])
def test_a_run_continues_on_other_ranks(files, alone, tmp_path, before, after, full_every):
    checkpoint = {"every_steps": 2, "full_every": full_every}
    run = tmp_path / "run"
    for step, (ranks, sharding) in ((8, before), (None, after)):
        config = config_of(
            files,
            ranks,
            sharding=sharding,
            checkpoint=checkpoint,
            train={"max_steps": step},
        )
        results = train_on(ranks, config, run, resume=step is None)
        assert not [result for result in results if isinstance(result, BaseException)], results
    assert_same_losses(run, alone[0])
    assert_same_model(run, alone[0])
    assert results[0].rows == alone[1].rows


ADMISSION = {"default": {"learning_rate": 0.1, "admission": {"occurrences": 6}}}


@pytest.fixture(scope="module")
def alone_with_admission(files, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    train_on(1, config_of(files, tables=ADMISSION), run)
    return run


@pytest.mark.parametrize("sharding", ["mixed", *map(slow, SHARDINGS)])
def test_admission_counts_what_all_ranks_see(files, alone_with_admission, tmp_path, sharding):
    run = tmp_path / "run"
    config = config_of(files, 2, tables=ADMISSION, sharding=sharding)
    results = train_on(2, config, run)
    assert not isinstance(results[0], BaseException), results
    assert_same_losses(run, alone_with_admission)
    assert_same_model(run, alone_with_admission)
    metrics = [
        [r for r in read_metrics(one) if r["kind"] == "tables"][-1]
        for one in (alone_with_admission, run)
    ]
    for table in COLUMNS:
        for key in ("rows", "admitted", "refused", "waiting"):
            assert metrics[0][f"{table}/{key}"] == metrics[1][f"{table}/{key}"]


def test_expired_keys_are_remembered_by_whoever_has_them(files, tmp_path):
    settings = {
        "default": {"learning_rate": 0.1, "expiry": {"after_steps": 3, "sweep_steps": 1}},
    }
    tombstones = []
    for number, (ranks, step) in enumerate(((2, 1), (3, 12), (2, 12), (2, 13))):
        config = config_of(files, ranks, tables=settings, train={"max_steps": step})
        results = train_on(ranks, config, tmp_path / "run", resume=number > 0)
        assert not isinstance(results[0], BaseException), results
        if step == 1:
            note_exported(tmp_path / "run" / "checkpoints", 1)
        if step == 12:
            table = load_run(tmp_path / "run").model.tables()["C1"]
            keys, steps = table.tombstones()
            tombstones.append(dict(zip(keys.tolist(), steps.tolist(), strict=True)))
            metrics = results[0].tables["C1"]
            assert (metrics["tombstones"], metrics["rows"]) == (len(keys), table.size)
            tombstones[-1]["expired"] = metrics["expired"]
    assert len(tombstones[0]) > 1
    assert tombstones[0] == tombstones[1]


def test_a_damaged_state_of_another_rank_is_refused_and_changes_nothing():
    config = hotrow.TableConfig("t", 2, expiry=hotrow.Expiry(after_steps=1, sweep_steps=1))
    table = Table(config, seed=0)
    table.keep_tombstones()
    for step in range(5):
        keys = np.array([step], np.int64)
        table.lookup(keys, insert=True)
        table.update(keys, np.ones((1, 2), np.float32))
    state = table.state()
    assert len(table.tombstones()[0])
    for damaged in (b"", state[:-1], state[:20] + b"x" + state[21:]):
        with pytest.raises(DataLossError, match="the state of table t is damaged"):
            table.merge_states([state, damaged], [True, True])
        assert table.state() == state
    other = Table(config, seed=0)
    other.merge_states([state, state], [True, False])
    assert other.step == table.step
    assert np.array_equal(other.tombstones(), table.tombstones())
    for metric in ("lookups", "admitted", "expired"):
        assert other.statistics()[metric] == table.statistics()[metric]


@pytest.mark.slow
def test_a_run_of_ranks_loads_as_one_model(files, alone, tmp_path):
    run = tmp_path / "run"
    train_on(3, config_of(files, 3, "mixed"), run)
    loaded, expected = load_run(run).model, load_run(alone[0]).model
    for name, table in loaded.tables().items():
        assert table.size == expected.tables()[name].size
        keys = np.sort(np.concatenate([batch.keys for batch in table.export_batches()]))
        np.testing.assert_allclose(
            table.lookup(keys), expected.tables()[name].lookup(keys), rtol=2e-5, atol=1e-6
        )


@pytest.mark.slow
def test_a_resumed_run_of_as_many_ranks_has_the_bits_of_one_that_went_through(files, tmp_path):
    for name, bounds in (("through", (None,)), ("resumed", (8, None))):
        for number, bound in enumerate(bounds):
            config = config_of(files, 2, train={"max_steps": bound})
            train_on(2, config, tmp_path / name, resume=number > 0)
    manifests = [
        json.loads((newest(tmp_path / name) / "manifest.json").read_text())
        for name in ("through", "resumed")
    ]
    digests = [{n: t["digest"] for n, t in one["tables"].items()} for one in manifests]
    assert None not in digests[0].values()
    assert digests[0] == digests[1]
    assert manifests[0]["format"] == 3
    dense = [(newest(tmp_path / name) / "model.safetensors").read_bytes() for name in
             ("through", "resumed")]  # fmt: skip
    assert dense[0] == dense[1]
    assert_same_losses(tmp_path / "through", tmp_path / "resumed", rtol=0)


def test_rank_0_decides_for_all_whether_a_checkpoint_is_an_increment(files, tmp_path, monkeypatch):
    from hotrow.trainer.checkpoint import writer

    read, take, kinds, rank = writer.read_manifest, writer.TrainingSnapshot, {}, threading.local()

    def unreadable_on_rank_1(path):
        if rank.number == 1:
            raise DataLossError("not there yet")
        return read(path)

    def noted(model, optimizer, position, metrics, kind, **others):
        kinds.setdefault(position.step, []).append(kind)
        return take(model, optimizer, position, metrics, kind, **others)

    train_it = ranked_training.train

    def train_noted(config, run_dir, resume, ranks):
        rank.number = ranks.rank
        return train_it(config, run_dir, resume, ranks)

    monkeypatch.setattr(writer, "read_manifest", unreadable_on_rank_1)
    monkeypatch.setattr(writer, "TrainingSnapshot", noted)
    monkeypatch.setattr(ranked_training, "train", train_noted)
    checkpoint = {"every_steps": 2, "full_every": 3, "asynchronous": False}
    config = config_of(files, 2, checkpoint=checkpoint, train={"max_steps": 8})
    results = train_on(2, config, tmp_path / "run")
    assert not [result for result in results if isinstance(result, BaseException)], results
    assert kinds == {step: [kind] * 2 for step, kind in
                     ((2, "full"), (4, "increment"), (6, "increment"), (8, "full"))}  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "sharding"), [slow(2, "mixed"), slow(2, "row"), slow(3, "column")]
)
def test_batch_normalisation_is_by_the_batch_of_all_ranks(files, tmp_path, ranks, sharding):
    model = {"batch_norm": True}
    alone = tmp_path / "alone"
    train_on(1, config_of(files, model=model), alone)
    config = config_of(files, ranks, model=model, sharding=sharding)
    results = train_on(ranks, config, tmp_path / "run")
    assert not [result for result in results if isinstance(result, BaseException)], results
    assert_same_losses(tmp_path / "run", alone)
    assert_same_model(tmp_path / "run", alone)


def test_a_failing_write_of_one_rank_fails_the_checkpoint_on_all(
    files, alone, tmp_path, monkeypatch, capsys
):
    write, failed = RowFiles.write_some, []

    def failing(files):
        if files.stem.endswith("@1") and not failed:
            failed.append(files.stem)
            raise OSError(28, "No space left on device", files.stem)
        return write(files)

    monkeypatch.setattr(RowFiles, "write_some", failing)
    run = tmp_path / "run"
    results = train_on(2, config_of(files, 2), run)
    assert not isinstance(results[0], BaseException), results
    assert failed
    output = capsys.readouterr().err
    assert output.count("is not written: rank 1: ") == 1
    assert not list((run / "checkpoints").glob(".unfinished*"))
    assert_same_model(run, alone[0])


def test_a_checkpoint_whose_directory_cannot_be_made_fails_and_training_goes_on(
    files, alone, tmp_path, monkeypatch, capsys
):
    from hotrow.trainer.checkpoint import shared_write

    remove, failed = shared_write.remove_leftovers, []

    def failing(path):
        if not failed:
            failed.append(path)
            raise OSError(5, "Input/output error", str(path))
        remove(path)

    monkeypatch.setattr(shared_write, "remove_leftovers", failing)
    run = tmp_path / "run"
    results = train_on(2, config_of(files, 2), run)
    assert not [result for result in results if isinstance(result, BaseException)], results
    output = capsys.readouterr().err
    assert output.count(f"is not written: {failed[0]}: Input/output error") == 1
    assert_same_model(run, alone[0])
