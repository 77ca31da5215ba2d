"""The training loop: deterministic, resumable, observed."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from criteo_files import write_criteo

from hotrow.config import parse_config
from hotrow.errors import (
    FailedPreconditionError,
    HotrowError,
    InvalidArgumentError,
)
from hotrow.sealed_directory import seal_of
from hotrow.trainer import progress
from hotrow.trainer.data import DataError
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.loop import train
from hotrow.trainer.metrics import BinaryMetrics
from hotrow.trainer.progress import Progress
from hotrow.trainer.run_directory import RunDirectory, read_metrics
from hotrow.trainer.train_step import make_forward
from hotrow.trainer.trained_run import load_run

ROWS = 230


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_criteo(directory / "train.tsv", ROWS, 0, values=9)
    write_criteo(directory / "valid.tsv", 100, 1, values=9)
    return directory


@pytest.fixture
def config(files):
    def make(**sections):
        values = {
            "name": "m",
            "seed": 5,
            "data": {
                "format": "criteo",
                "train": str(files / "train.tsv"),
                "valid": str(files / "valid.tsv"),
                "batch_size": 32,
            },
            "features": {
                "dense": {"columns": ["I1", "I2"], "transform": "log", "standardize": True},
                "sparse": {"columns": ["C1", "C2"], "dim": 4},
            },
            "model": {"arch": "dlrm", "bottom": [8, 4], "top": [8], "dropout": 0.2},
            "optimizer": {"name": "adam", "learning_rate": 0.01},
            "train": {"epochs": 2, "shuffle_buffer": 100},
        }
        return parse_config(values | sections)

    return make


def state_of(run_dir):
    model = load_run(run_dir).model
    tables = {name: (t.digest(), t.step) for name, t in model.tables().items()}
    return tables, [variable.numpy() for variable in model.dense_variables()]


def assert_equal_runs(one, other):
    (tables, variables), (other_tables, other_variables) = state_of(one), state_of(other)
    assert tables == other_tables
    for value, expected in zip(variables, other_variables, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_run_trains_every_row_once_an_epoch_and_reports(config, tmp_path):
    result = train(config(), tmp_path / "run")
    steps_an_epoch = math.ceil(ROWS / 32)
    assert result.steps == 2 * steps_an_epoch
    assert (result.train.rows, result.valid.rows) == (ROWS, 100)
    assert set(result.rows) == {"C1", "C2"}
    records = list(read_metrics(tmp_path / "run"))
    assert [(r["kind"], r["step"], r["epoch"]) for r in records] == [
        ("train", steps_an_epoch, 0),
        ("valid", steps_an_epoch, 0),
        ("train", 2 * steps_an_epoch, 1),
        ("valid", 2 * steps_an_epoch, 1),
        ("checkpoint", 2 * steps_an_epoch, 2),
    ]
    assert records[-2]["auc"] == result.valid_auc
    files = (tmp_path / "run" / "checkpoints" / "step-00000016").rglob("*.*")
    sizes = sum(path.stat().st_size for path in files if path.name != "manifest.json")
    assert records[-1]["bytes"] == sizes
    assert records[-1]["checkpoint"] == "full"
    assert 0 < records[-1]["checkpoint_stall_seconds"] <= records[-1]["checkpoint_seconds"]


def test_a_run_learns_what_the_columns_determine(config, tmp_path):
    quick = {"default": {"learning_rate": 0.5}}
    wide_deep = {"arch": "wide_deep", "hidden": [8]}
    result = train(config(model=wide_deep, tables=quick), tmp_path / "run")
    assert result.valid_auc > 0.95
    assert result.valid_logloss < 0.5


def test_equal_configurations_train_equal_models(config, tmp_path):
    train(config(), tmp_path / "one")
    train(config(), tmp_path / "other")
    assert_equal_runs(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(3, id="in epoch 1", marks=pytest.mark.slow),
        pytest.param(8, id="between epochs", marks=pytest.mark.slow),
        pytest.param(11, id="in epoch 2"),
    ],
)
def test_an_interrupted_run_ends_like_one_that_was_not(config, tmp_path, steps):
    straight = train(config(), tmp_path / "straight")
    shorter = config(train={"epochs": 2, "shuffle_buffer": 100, "max_steps": steps})
    assert train(shorter, tmp_path / "parts").steps == steps
    result = train(config(), tmp_path / "parts", resume=True)
    assert result.steps == 16
    assert (result.train, result.valid) == (straight.train, straight.valid)
    assert_equal_runs(tmp_path / "straight", tmp_path / "parts")


def test_resuming_falls_back_to_an_undamaged_checkpoint_and_ends_the_same(config, tmp_path, capsys):
    often = {"every_steps": 5, "keep": 3, "asynchronous": False}
    train(config(checkpoint=often), tmp_path / "straight")
    part = config(checkpoint=often, train={"epochs": 2, "shuffle_buffer": 100, "max_steps": 12})
    train(part, tmp_path / "parts")
    newest = tmp_path / "parts" / "checkpoints" / "step-00000012" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    train(config(checkpoint=often), tmp_path / "parts", resume=True)
    assert_equal_runs(tmp_path / "straight", tmp_path / "parts")
    printed = capsys.readouterr().err
    assert "checkpoint of step 12 is not usable" in printed
    assert "resuming" in printed
    assert "at step 10" in printed


def test_a_run_that_goes_on_with_other_threads_says_that_bits_may_differ(config, tmp_path, capsys):
    part = config(train={"epochs": 2, "shuffle_buffer": 100, "max_steps": 2})
    train(part, tmp_path / "run")
    manifest = tmp_path / "run" / "checkpoints" / "step-00000002" / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts.pop("seal")
    facts["environment"]["threads"] = 77
    manifest.write_text(json.dumps({**facts, "seal": seal_of(facts)}))
    train(config(), tmp_path / "run", resume=True)
    assert "bits may differ from an uninterrupted run: threads 77 -> " in capsys.readouterr().err


def test_resuming_before_the_first_checkpoint_starts_over(config, tmp_path, capsys):
    RunDirectory.create(tmp_path / "run", config()).close()
    assert train(config(), tmp_path / "run", resume=True).steps == 16
    assert "no checkpoint in" in capsys.readouterr().err


def test_resuming_a_finished_run_changes_nothing(config, tmp_path):
    train(config(), tmp_path / "run")
    before = state_of(tmp_path / "run")[0]
    measured = (tmp_path / "run" / "metrics.jsonl").read_text()
    result = train(config(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == measured
    assert result.train.rows == ROWS
    assert result.steps == 16
    assert math.isnan(result.samples_per_second)
    assert result.as_dict()["samples_per_second"] is None
    assert state_of(tmp_path / "run")[0] == before


def test_checkpoints_are_written_every_so_many_steps_and_the_newest_kept(config, tmp_path):
    often = {"every_steps": 3, "keep": 2, "asynchronous": False}
    train(config(checkpoint=often), tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000015", "step-00000016"]


def test_validation_every_so_many_steps_changes_nothing(config, tmp_path):
    train(config(), tmp_path / "rarely")
    often = {"epochs": 2, "shuffle_buffer": 100, "eval_every_steps": 3}
    train(config(train=often), tmp_path / "often")
    assert_equal_runs(tmp_path / "rarely", tmp_path / "often")
    steps = [r["step"] for r in read_metrics(tmp_path / "often") if r["kind"] == "valid"]
    assert steps == [3, 6, 8, 9, 12, 15, 16]


def test_a_loaded_run_scores_as_the_run_did(config, tmp_path):
    result = train(config(), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.position.step == result.steps
    forward = make_forward(run.model, run.config)
    assert evaluate_file(forward, run.config, run.config.data.valid) == result.valid


def test_the_events_are_what_tensorboard_reads(config, tmp_path):
    result = train(config(), tmp_path / "run")
    (file,) = (tmp_path / "run" / "events").iterdir()
    scalars = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            scalars[value.tag, event.step] = tf.make_ndarray(value.tensor).item()
    assert scalars["valid/auc", 16] == pytest.approx(result.valid_auc)
    assert ("train/logloss", 8) in scalars


def test_a_loss_that_is_no_longer_finite_ends_the_run(config, tmp_path):
    wild = config(optimizer={"name": "sgd", "learning_rate": 1e30})
    with pytest.raises(FailedPreconditionError, match=r"no longer finite at step .*learning_rate"):
        train(wild, tmp_path / "run")


def test_a_key_outside_of_the_vocabulary_is_one_line(config, tmp_path):
    bounded = config(tables={"C1": {"vocabulary_size": 10}})
    with pytest.raises(HotrowError, match=r"step 1: table C1.*key .*vocabulary_size") as refused:
        train(bounded, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()  # nothing was trained


def test_what_admission_and_expiry_did_is_reported_and_survives_a_resumption(config, tmp_path):
    tables = {
        "C1": {"admission": {"occurrences": 20}},
        "C2": {"expiry": {"after_steps": 1, "sweep_steps": 1}},
    }
    whole = train(config(tables=tables), tmp_path / "whole")
    assert set(whole.tables) == {"C1", "C2"}
    c1, c2 = whole.tables["C1"], whole.tables["C2"]
    assert c1["admitted"] == c1["rows"] == whole.rows["C1"] > 0
    assert c1["refused"] >= 19 * c1["rows"] + c1["waiting"]
    assert c1["expired"] == c1["tombstones"] == 0
    assert c2["expired"] > 0
    assert c2["rows"] == c2["admitted"] - c2["expired"]
    reported = [r for r in read_metrics(tmp_path / "whole") if r["kind"] == "tables"]
    last = {key: value for key, value in reported[-1].items() if "/" in key}
    assert last == {f"{t}/{key}": n for t, of in whole.tables.items() for key, n in of.items()}
    short = config().model_dump()["train"] | {"max_steps": 5}
    train(config(tables=tables, train=short), tmp_path / "parts")
    resumed = train(config(tables=tables), tmp_path / "parts", resume=True)
    assert resumed.tables == whole.tables
    assert_equal_runs(tmp_path / "whole", tmp_path / "parts")


def test_a_run_without_admission_and_expiry_reports_no_metrics_of_tables(config, tmp_path):
    result = train(config(train={"max_steps": 1}), tmp_path / "run")
    assert result.tables == {}
    assert not [r for r in read_metrics(tmp_path / "run") if r["kind"] == "tables"]


def test_a_malformed_line_ends_the_run_or_is_skipped_and_counted(config, tmp_path, files, capsys):
    broken = tmp_path / "broken.tsv"
    broken.write_text((files / "train.tsv").read_text() + "1\tnonsense\n")
    data = {"format": "criteo", "train": str(broken), "batch_size": 32}
    with pytest.raises(DataError, match="line 231"):
        train(config(data=data), tmp_path / "fail")
    assert not (tmp_path / "fail").exists()
    result = train(config(data=data | {"on_malformed": "skip"}), tmp_path / "skip")
    assert result.train.rows == ROWS
    assert math.isnan(result.valid_auc)
    assert "1 malformed line, the first is line 231: " in capsys.readouterr().err


def test_settings_that_do_not_fit_are_refused_before_anything_is_written(config, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"online.source is not set"):
        train(config(online={"publish_seconds": 7}), tmp_path / "run", online=True)
    with pytest.raises(InvalidArgumentError, match=r"parallel.workers is 7, but 1 ranks train"):
        train(config(parallel={"workers": 7}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_checkpoint_cannot_be_loaded(config, tmp_path):
    RunDirectory.create(tmp_path / "run", config()).close()
    with pytest.raises(FailedPreconditionError, match="has no checkpoint yet"):
        load_run(tmp_path / "run")


def test_a_result_is_json_even_without_metrics(config, tmp_path):
    alone = config().model_dump(mode="json")["data"] | {"valid": None}
    result = train(config(data=alone, train={"max_steps": 1}), tmp_path / "run")
    metrics = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert metrics["steps"] == 1
    assert metrics["valid_auc"] is None


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    quality = BinaryMetrics().result()
    for stream in (Terminal(), io.StringIO()):
        shown = Progress(5, stream)
        assert shown.step_done()
        shown.report_training(6, 0, quality, 1234.0)
        shown.report_validation(6, quality)
        shown.close()
        text = stream.getvalue()
        assert "validation:" in text
        assert ("\r" in text) == stream.isatty()
        assert ("step 6  epoch 1  1,234 samples/s" in text) != stream.isatty()
