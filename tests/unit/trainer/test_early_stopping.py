"""The best validation so far and its checkpoint, and the end of a run that gets no better."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hotrow.config import parse_config
from hotrow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.early_stopping import EarlyStopping
from hotrow.trainer.loop import train
from hotrow.trainer.metrics import Quality
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.source_run import find_source
from hotrow.trainer.trained_run import load_run


def quality(auc=0.5, logloss=0.5):
    return Quality(10, auc, logloss, 1.0, 0.5)


def values_of(path="/none", **sections):
    return {
        "name": "m",
        "data": {"format": "csv", "train": str(path), "valid": str(path), "batch_size": 16},
        "features": {"sparse": {"columns": ["city"], "dim": 4}},
        "model": {"arch": "wide_deep", "hidden": [8], "dropout": 0.2},
        **sections,
    }


def stopping_of(**options):
    return EarlyStopping(parse_config(values_of(train={"early_stopping": options})))


def observe_all(stopping, values, metric="auc"):
    """Returns which validations are the best so far, until it is enough."""
    found = []
    for step, value in enumerate(values):
        if stopping.is_enough:
            break
        found.append(stopping.observe(step, quality(**{metric: value})))
    return found


@pytest.mark.parametrize(
    ("options", "values", "better", "best"),
    [
        ({"patience": 2}, [0.5, 0.6, 0.6, 0.6, 0.9], [True, True, False, False], 1),
        ({"patience": 1, "min_delta": 0.1}, [0.5, 0.59], [True, False], 0),
        ({"metric": "logloss", "patience": 1}, [0.5, 0.4, 0.45], [True, True, False], 1),
    ],
    ids=["patience", "a least improvement", "a lower logloss is better"],
)
def test_a_run_ends_when_validations_no_longer_get_better(options, values, better, best):
    stopping = stopping_of(**options)
    assert observe_all(stopping, values, options.get("metric", "auc")) == better
    assert stopping.is_enough
    assert stopping.best.step == best


def test_a_step_counts_once_and_the_state_goes_on():
    stopping = stopping_of(patience=2)
    observe_all(stopping, [0.5, 0.4])
    assert not stopping.observe(1, quality(0.9))
    again = stopping_of(patience=2)
    again.set_state(stopping.state())
    assert again.best == stopping.best
    assert not again.observe(1, quality(0.9))
    again.observe(2, quality(0.4))
    assert again.is_enough


def test_the_state_of_another_metric_is_not_taken_and_a_damaged_one_refused():
    stopping = stopping_of(patience=2)
    observe_all(stopping, [0.5])
    other = stopping_of(metric="logloss")
    other.set_state(stopping.state())
    assert other.best is None
    with pytest.raises(DataLossError, match="early stopping is damaged"):
        other.set_state({"early_stopping": np.zeros(3)})


def test_a_metric_that_is_not_defined_is_one_line():
    with pytest.raises(FailedPreconditionError, match=r"auc of data.valid is not defined: all 10"):
        stopping_of().observe(1, quality(math.nan))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"train": {"early_stopping": {}}}, "train.early_stopping: there is no validation file"),
        ({"checkpoint": {"best": "auc"}}, "checkpoint.best: there is no validation file"),
        ({"train": {"early_stopping": {"patience": 0}}}, "patience: 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(sections, said):
    values = values_of(**sections)
    del values["data"]["valid"]
    with pytest.raises(InvalidArgumentError, match=said):
        parse_config(values)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run that learns its training rows by heart: validations get worse."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(3)
    for name, rows in (("train", 160), ("valid", 120)):
        cities = random.integers(0, 40, rows)
        labels = (random.random(rows) < 0.3 + 0.4 * (cities < 20)).astype(int)
        lines = [f"{label},c{city}" for label, city in zip(labels, cities, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["label,city", *lines]) + "\n")

    def make(**train_section):
        values = values_of(
            folder / "train.csv",
            tables={"default": {"learning_rate": 1.0}},
            train={
                "epochs": 20,
                "eval_every_steps": 3,
                "early_stopping": {"metric": "logloss", "patience": 6},
                **train_section,
            },
            checkpoint={"every_steps": 5, "keep": 1, "full_every": 3},
        )
        values["data"]["valid"] = str(folder / "valid.csv")
        return parse_config(values)

    return make


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "run"
    return train(config(), path)


def test_the_best_checkpoint_stays_and_stands_for_the_run(stopped):
    losses = {
        r["step"]: r["logloss"] for r in read_metrics(stopped.run_dir) if r["kind"] == "valid"
    }
    best = min(losses, key=losses.__getitem__)
    assert (stopped.best.step, stopped.best.value) == (best, losses[best])
    assert stopped.as_dict()["best"] == {"step": best, "metric": "logloss", "value": losses[best]}
    assert sum(step > best for step in losses) == 6
    assert stopped.steps == max(losses) < 200
    directory = CheckpointDirectory(stopped.run_dir / "checkpoints", 1)
    assert best in directory.steps()
    assert stopped.steps in directory.steps()
    assert load_run(stopped.run_dir).position.step == best
    assert find_source(stopped.run_dir, False, print).step == best


def test_a_run_that_was_interrupted_stops_at_the_same_step_with_the_same_best(
    config, stopped, tmp_path, capsys
):
    best = stopped.best.step
    # In the middle, right at a validation, after the best one, and at the very end.
    for bound in (2, best, best + 4, stopped.steps):
        train(config(max_steps=bound), tmp_path / "run", resume=bound > 2)
    again = train(config(), tmp_path / "run", resume=True)
    assert (again.steps, again.best, again.valid) == (stopped.steps, stopped.best, stopped.valid)
    one, other = load_run(stopped.run_dir).model, load_run(tmp_path / "run").model
    assert {n: t.digest() for n, t in one.tables().items()} == {
        n: t.digest() for n, t in other.tables().items()
    }
    # More patience goes on.
    longer = config(early_stopping={"metric": "logloss", "patience": 8})
    assert train(longer, tmp_path / "run", resume=True).steps > stopped.steps
