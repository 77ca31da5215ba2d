"""Several ranks train one model as if they were one: here ranks are threads of this process.

Most runs have a table of each sharding, `MIXED`; a run of each sharding alone is slow.
"""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from criteo_files import write_criteo

import hotrow
from hotrow.config import parse_config
from hotrow.errors import DataLossError, HotrowError, InvalidArgumentError
from hotrow.ops.ranks import LONE, thread_ranks
from hotrow.ops.table import Table
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.array_file import read_arrays
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.data import DataError
from hotrow.trainer.loop import train
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.trained_run import load_run

ROWS, BATCH = 330, 32
SHARDINGS = ("row", "column", "row_broadcast", "table", "replicated")
COLUMNS = ("C1", "C2", "C3", "C4", "C5")
# Shardings by table; `parallel.sharding` says the others.
MIXES = {
    "mixed": dict(zip(COLUMNS, SHARDINGS, strict=True)),
    "mixed otherwise": dict(zip(COLUMNS, (*SHARDINGS[1:], SHARDINGS[0]), strict=True)),
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_criteo(folder / "train.tsv", ROWS, 0, values=40)
    write_criteo(folder / "valid.tsv", 70, 1, values=40)
    return folder


def config_of(files, workers=1, sharding=None, **sections):
    """Returns a configuration; sharding: a key of `MIXES`, or that of all tables."""
    values = {
        "name": "m",
        "seed": 5,
        "data": {
            "format": "criteo",
            "train": str(files / "train.tsv"),
            "valid": str(files / "valid.tsv"),
            "batch_size": BATCH,
        },
        "features": {
            "dense": {"columns": ["I1", "I2"], "transform": "log", "standardize": True},
            "sparse": {"columns": list(COLUMNS), "dim": 5},
        },
        "model": {"arch": "dlrm", "bottom": [8, 5], "top": [8], "dropout": 0.2, "l2": 0.01},
        "optimizer": {"name": "adam", "learning_rate": 0.01, "global_clipnorm": 0.5},
        "tables": {"default": {"learning_rate": 0.1}},
        "train": {"epochs": 2, "shuffle_buffer": 100, "eval_every_steps": 4},
        "checkpoint": {"every_steps": 5},
    }
    parallel = {"workers": workers, "timeout_seconds": 60.0, **sections.pop("parallel", {})}
    if sharding is not None and sharding not in MIXES:
        parallel["sharding"] = sharding
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    for column, own in MIXES.get(sharding, {}).items():
        values["tables"][column] = {"sharding": own}
    return parse_config({**values, "parallel": parallel})


def train_on(ranks, config, run_dir, resume=False):
    """Trains on ranks that are threads; returns the result of each, or what it raised."""
    if ranks == 1:
        return [train(config, run_dir, resume)]
    results = [None] * ranks

    def run(rank):
        try:
            with rank:
                results[rank.rank] = train(config, run_dir, resume, rank)
        except BaseException as err:
            results[rank.rank] = err

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(ranks, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def losses(run_dir, kind="train"):
    return {r["step"]: r["logloss"] for r in read_metrics(run_dir) if r["kind"] == kind}


def newest(run_dir):
    directory = CheckpointDirectory(run_dir / "checkpoints", 1)
    return directory.of_step(directory.steps()[-1])


def rows_of(run_dir):
    """Returns lines by key of each table, and clocks and counts."""
    rows = CheckpointRows(newest(run_dir))
    found = {}
    for name in rows.tables():
        layout = rows.layout(name)
        for piece in rows.read(name, lambda _: None):
            for key, weights, clock, count in zip(
                piece.keys, layout.weights(piece.lines), piece.clocks, piece.counts, strict=True
            ):
                found[name, int(key)] = (weights.copy(), int(clock), int(count))
    return found


def assert_same_model(one, other, rtol=2e-5):
    left, right = rows_of(one), rows_of(other)
    assert left.keys() == right.keys()
    for key, (weights, clock, count) in left.items():
        assert (clock, count) == right[key][1:], key
        np.testing.assert_allclose(weights, right[key][0], rtol=rtol, atol=1e-6)
    mine, theirs = (read_arrays(newest(run) / "model.safetensors") for run in (one, other))
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_allclose(values, theirs[name], rtol=rtol, atol=1e-6, err_msg=name)


def assert_same_losses(one, other, rtol=1e-6):
    valid = losses(one, "valid")
    assert valid.keys() == losses(other, "valid").keys()
    for kind in ("train", "valid"):
        left, right = losses(one, kind), losses(other, kind)
        # Training is reported at each validation, and by the clock in between.
        common = sorted(left.keys() & right.keys())
        assert set(valid) <= set(common)
        np.testing.assert_allclose(
            [left[step] for step in common], [right[step] for step in common], rtol=rtol
        )


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
    for number, (ranks, step) in enumerate(((3, 12), (2, 12), (2, 13))):
        config = config_of(files, ranks, tables=settings, train={"max_steps": step})
        results = train_on(ranks, config, tmp_path / "run", resume=number > 0)
        assert not isinstance(results[0], BaseException), results
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


def test_an_error_of_one_rank_ends_all(files, tmp_path, monkeypatch):
    from hotrow.trainer import batch_feed

    exchange = batch_feed.exchange

    def failing(ranks, own, step):
        if ranks.rank == 1 and step == 3:
            raise RuntimeError("no more")
        return exchange(ranks, own, step)

    monkeypatch.setattr(batch_feed, "exchange", failing)
    results = train_on(3, config_of(files, 3), tmp_path / "run")
    assert isinstance(results[1], RuntimeError)
    for rank in (0, 2):
        assert isinstance(results[rank], HotrowError)
        assert "rank 1: " in str(results[rank])
        assert "no more" in str(results[rank])


def fail_to_read(monkeypatch, batches, rank, error=None):
    """Lets one rank have so many batches in its epoch, then an error or no more."""
    from hotrow.trainer import loop

    make = loop.with_inputs

    def failing(stream):
        for number, batch in enumerate(make(stream)):
            if stream._part.rank == rank and number == batches:
                if error is not None:
                    raise error
                return
            yield batch

    monkeypatch.setattr(loop, "with_inputs", failing)


@pytest.mark.parametrize(
    ("batches", "rank"),
    [(0, 1), (1, 0), (4, 1), *(slow(*case) for case in ((0, 0), (1, 1), (2, 0), (2, 1), (4, 0)))],
)
def test_a_rank_that_cannot_read_on_ends_all_with_its_error(
    files, tmp_path, monkeypatch, batches, rank
):
    fail_to_read(monkeypatch, batches, rank, DataError("line 7"))
    config = config_of(files, 2, train={"eval_every_steps": None})
    results = train_on(2, config, tmp_path / "run")
    expected = "rank 1: line 7" if rank else "line 7"
    assert [(str(result), result.exit_code) for result in results] == [(expected, 1)] * 2


@pytest.mark.parametrize("batches", [0, slow(1), 4])
def test_a_rank_whose_data_ends_early_ends_all(files, tmp_path, monkeypatch, batches):
    fail_to_read(monkeypatch, batches, 1)
    results = train_on(2, config_of(files, 2), tmp_path / "run")
    for result in results:
        assert str(result) == (
            f"the ranks read different files: rank 1 has no batch after step {batches}, rank 0 has"
        )


def test_what_cannot_be_read_after_the_last_step_is_not_missed(files, tmp_path, monkeypatch):
    fail_to_read(monkeypatch, 4, 1, DataError("line 7"))
    results = train_on(2, config_of(files, 2, train={"max_steps": 4}), tmp_path / "run")
    assert [getattr(result, "steps", result) for result in results] == [4, 4]
    assert newest(tmp_path / "run").name == "step-00000004"


def test_a_checkpoint_that_is_due_before_a_failure_to_read_is_written(files, tmp_path, monkeypatch):
    fail_to_read(monkeypatch, 5, 1, DataError("line 7"))
    results = train_on(2, config_of(files, 2, checkpoint={"every_steps": 5}), tmp_path / "run")
    assert [str(result) for result in results] == ["rank 1: line 7"] * 2
    assert newest(tmp_path / "run").name == "step-00000005"


def test_malformed_rows_end_all_ranks_with_the_same_error(files, tmp_path):
    text = (files / "train.tsv").read_text().splitlines()
    text[200] = "broken"
    (tmp_path / "broken.tsv").write_text("\n".join(text))
    config = config_of(files, 2, data={"train": str(tmp_path / "broken.tsv")})
    results = train_on(2, config, tmp_path / "run")
    assert [str(result) for result in results] == [str(results[0])] * 2
    assert "broken.tsv: line 201" in str(results[0])
    assert results[0].exit_code == 1


def test_a_key_outside_of_the_vocabulary_on_one_rank_ends_all(files, tmp_path):
    lines = [f"{i % 2} {'999' if i == 50 else i % 7}:1" for i in range(64)]
    (tmp_path / "ids.libsvm").write_text("\n".join(lines) + "\n")
    config = parse_config(
        {
            "name": "ids",
            "data": {"format": "libsvm", "train": str(tmp_path / "ids.libsvm"), "batch_size": 16},
            "features": {"sparse": {"columns": ["ids"], "dim": 4, "hash": False}},
            "tables": {"default": {"vocabulary_size": 100}},
            "model": {"arch": "wide_deep", "hidden": [4]},
            "train": {"shuffle": False},
            "parallel": {"workers": 2},
        }
    )
    results = train_on(2, config, tmp_path / "run")
    for result in results:
        assert isinstance(result, HotrowError)
        assert "999" in str(result)


def test_a_failing_write_of_one_rank_fails_the_checkpoint_on_all(
    files, alone, tmp_path, monkeypatch, capsys
):
    from hotrow.trainer.checkpoint import snapshot

    write, failed = snapshot.write_rows, []

    def failing(rows, stem, *arguments):
        if stem.endswith("@1") and not failed:
            failed.append(stem)
            raise OSError(28, "No space left on device", stem)
        return write(rows, stem, *arguments)

    monkeypatch.setattr(snapshot, "write_rows", failing)
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

    train_it = train

    def train_noted(config, run_dir, resume, ranks):
        rank.number = ranks.rank
        return train_it(config, run_dir, resume, ranks)

    monkeypatch.setattr(writer, "read_manifest", unreadable_on_rank_1)
    monkeypatch.setattr(writer, "TrainingSnapshot", noted)
    monkeypatch.setitem(globals(), "train", train_noted)
    checkpoint = {"every_steps": 2, "full_every": 3, "asynchronous": False}
    config = config_of(files, 2, checkpoint=checkpoint, train={"max_steps": 8})
    results = train_on(2, config, tmp_path / "run")
    assert not [result for result in results if isinstance(result, BaseException)], results
    assert kinds == {step: [kind] * 2 for step, kind in
                     ((2, "full"), (4, "increment"), (6, "increment"), (8, "full"))}  # fmt: skip


def test_the_number_of_ranks_must_be_that_of_the_configuration(files, tmp_path):
    with pytest.raises(InvalidArgumentError, match="workers is 2, but 1 ranks train"):
        train(config_of(files, 2), tmp_path / "run", ranks=LONE)


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


def test_ranks_with_other_configurations_are_refused(files, tmp_path):
    one, other = config_of(files, 2), config_of(files, 2, train={"epochs": 7})
    results = [None, None]

    def run(rank, config):
        try:
            train(config, tmp_path / "run", ranks=rank)
        except InvalidArgumentError as err:
            results[rank.rank] = str(err)

    threads = [
        threading.Thread(target=run, args=pair)
        for pair in zip(thread_ranks(2, 60.0), (one, other), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("configuration of rank 1 differs" in result for result in results)
