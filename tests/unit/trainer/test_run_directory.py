"""The run directory: one run, one writer, metrics that survive a crash."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from full_disk import full_disk

from hotrow.config import parse_config
from hotrow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from hotrow.trainer.run_directory import (
    RunDirectory,
    default_run_directory,
    newest_run_directory,
    read_config,
    read_metrics,
)


def config_of(**sections):
    return parse_config(
        {
            "name": "m",
            "data": {"format": "criteo", "train": "/none"},
            "features": {"sparse": {"columns": ["C1"], "dim": 4}},
            "model": {"arch": "logistic"},
            **sections,
        }
    )


@pytest.fixture
def run(tmp_path):
    with contextlib.closing(RunDirectory.create(tmp_path / "run", config_of())) as directory:
        yield directory


def test_a_new_run_writes_its_resolved_configuration(run):
    assert read_config(run.path) == config_of()


def test_a_directory_with_a_run_is_not_taken_again(run):
    run.append_metrics({"step": 1})
    with pytest.raises(AlreadyExistsError, match="holds a run already; add --resume"):
        RunDirectory.create(run.path, config_of())


def test_a_run_that_ended_before_it_did_anything_is_begun_anew(run):
    run.close()
    run._lock = RunDirectory.create(run.path, config_of(seed=9))._lock
    assert read_config(run.path).seed == 9


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="cannot make run directory"):
        RunDirectory.create(tmp_path / "file" / "run", config_of())


def test_two_writers_at_once_are_refused(run):
    with pytest.raises(FailedPreconditionError, match="another process trains in"):
        RunDirectory.reopen(run.path, config_of())
    run.close()
    again = RunDirectory.reopen(run.path, config_of())
    run._lock = again._lock  # closed once, by the fixture


def test_a_directory_without_a_run_cannot_be_reopened(tmp_path):
    with pytest.raises(NotFoundError, match=r"no run in .*: it has no config.yaml"):
        RunDirectory.reopen(tmp_path, config_of())


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"seed": 1}, "seed"),
        ({"model": {"arch": "logistic", "l2": 0.1}}, "model.l2"),
        ({"tables": {"C1/wide": {"learning_rate": 1.0}}}, "tables.C1/wide"),
        ({"train": {"shuffle": False}}, "train.shuffle"),
        ({"data": {"format": "criteo", "train": "/none", "batch_size": 7}}, "data.batch_size"),
        ({"online": {"source": "file:/other"}}, "online.source"),
        ({"online": {"late_seconds": 5.0, "late": "dead_letter"}}, "online.late"),
    ],
)
def test_a_run_is_not_continued_with_what_would_change_its_steps(run, changed, key):
    run.close()
    with pytest.raises(InvalidArgumentError, match=f"^{key}.*a run continues with the same value"):
        RunDirectory.reopen(run.path, config_of(**changed))
    run._lock = RunDirectory.reopen(run.path, config_of())._lock


def test_a_run_may_be_continued_for_longer_and_remembers_it(run):
    run.close()
    longer = config_of(train={"epochs": 5, "max_steps": 9}, checkpoint={"keep": 9})
    run._lock = RunDirectory.reopen(run.path, longer)._lock
    assert read_config(run.path) == longer


def test_an_online_run_may_be_continued_with_another_store_and_other_gates(run):
    run.close()
    moved = config_of(
        online={
            "models": "/models",
            "store": "redis://moved",
            "publish_seconds": 5.0,
            "publish_rows": 1000,
            "max_hold_seconds": 5.0,
            "canary": "/canary.csv",
            "canary_auc_drop": 0.5,
            "admin": "127.0.0.1:8600",
        }
    )
    run._lock = RunDirectory.reopen(run.path, moved)._lock
    assert read_config(run.path) == moved


def test_metrics_come_back_without_numbers_that_json_lacks(run):
    run.append_metrics({"step": 1, "auc": 0.5})
    run.append_metrics({"step": 2, "auc": math.nan})
    assert list(read_metrics(run.path)) == [{"step": 1, "auc": 0.5}, {"step": 2, "auc": None}]


def test_a_measurement_that_a_full_disk_cuts_leaves_the_others_whole(run):
    run.append_metrics({"step": 1})
    with full_disk(20), pytest.raises(OSError, match=r"No space left|File too large"):
        run.append_metrics({"step": 2})
    run.append_metrics({"step": 3})
    assert list(read_metrics(run.path)) == [{"step": 1}, {"step": 3}]


def test_measurements_after_a_step_and_a_torn_line_are_cut_away(run):
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "au')
    run.truncate_metrics(2)
    run.append_metrics({"step": 3, "again": True})
    assert list(read_metrics(run.path)) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


def test_a_run_is_reopened_on_a_full_disk(run):
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    run.close()
    with full_disk(0):
        run._lock = RunDirectory.reopen(run.path, config_of())._lock
        run.truncate_metrics(2)
    assert list(read_metrics(run.path)) == [{"step": 1}, {"step": 2}]
    assert read_config(run.path) == config_of()


def test_a_torn_line_between_others_is_removed(run):
    run.append_metrics({"step": 1})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "au\n')
    run.append_metrics({"step": 3})
    run.truncate_metrics(3)
    assert (run.path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 3}\n'


def test_the_newest_run_of_a_name_that_has_a_checkpoint_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match=r"no run of 'm' in .* to resume; give --run-dir"):
        newest_run_directory("m")
    path = default_run_directory("m")
    RunDirectory.create(path, config_of()).close()
    with pytest.raises(NotFoundError, match=f"no run of 'm' .* a checkpoint .*--run-dir {path} "):
        newest_run_directory("m")
    (path / "checkpoints" / "step-00000007").mkdir(parents=True)
    # A start that failed later, and a run of a longer name.
    RunDirectory.create(Path("runs/m-29990101-000000"), config_of()).close()
    RunDirectory.create(Path("runs/m-b-29990101-000000"), config_of()).close()
    Path("runs/m-b-29990101-000000/checkpoints/step-00000001").mkdir(parents=True)
    assert newest_run_directory("m") == path


def test_a_start_that_failed_leaves_no_directory_but_what_was_there(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    for name in ("new", "kept"):
        directory = RunDirectory.create(tmp_path / name, config_of(), {"run": "other"})
        directory.discard()
        directory.close()
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["notes.txt"]


def test_discarding_a_run_that_was_reopened_keeps_it(run):
    run.close()
    again = RunDirectory.reopen(run.path, config_of())
    again.discard()
    run._lock = again._lock
    assert read_config(run.path) == config_of()
