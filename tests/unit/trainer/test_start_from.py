"""A run that starts from the tables and weights of another run."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import yaml

from hotrow.cli.main import main
from hotrow.config import parse_config
from hotrow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from hotrow.ops.ranks import thread_ranks
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.loop import train
from hotrow.trainer.run_directory import RunDirectory
from hotrow.trainer.source_run import find_source
from hotrow.trainer.start_rules import differences_of
from hotrow.trainer.trained_run import load_run

BATCH, ROWS = 16, 160
STEPS = ROWS // BATCH
"""Of a day."""


def write_day(path, seed):
    random = np.random.default_rng(seed)
    lines = ["label,age,city,tag"]
    for _ in range(ROWS):
        label = int(random.random() < 0.4)
        age = random.integers(10 + 50 * seed, 90 + 50 * seed)
        lines.append(f"{label},{age},c{random.integers(0, 30)},{random.integers(0, 60)}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    write_day(folder / "day1.csv", 0)
    write_day(folder / "day2.csv", 1)
    return folder


def values_of(folder, *days, **sections):
    values = {
        "name": "m",
        "seed": 5,
        "data": {
            "format": "csv",
            "train": [str(folder / f"{day}.csv") for day in days or ("day1",)],
            "batch_size": BATCH,
        },
        "features": {
            "dense": {"columns": ["age"], "transform": "log"},
            "sparse": [{"columns": ["city"], "dim": 4}, {"columns": ["tag"], "dim": 4}],
        },
        "tables": {
            "default": {"optimizer": "adam", "learning_rate": 0.05, "bias_correction": "global"},
            "tag": {
                "admission": {"occurrences": 2},
                "expiry": {"after_steps": 6, "sweep_steps": 2},
            },
        },
        "model": {"arch": "wide_deep", "hidden": [8], "dropout": 0.2},
        "optimizer": {"learning_rate": 0.01},
        "train": {"shuffle": False},
    }
    for name, section in sections.items():
        both = isinstance(section, dict) and name in values and name != "model"
        values[name] = {**values[name], **section} if both else section
    return values


@pytest.fixture(scope="module")
def config(folder):
    def make(*days, **sections):
        return parse_config(values_of(folder, *days, **sections))

    return make


@pytest.fixture(scope="module")
def first_day(config, folder):
    """A run on the first day; no test writes to it."""
    train(config("day1"), folder / "run")
    return folder / "run"


def state_of(run_dir):
    run = load_run(run_dir)
    tables = {n: (t.digest(), t.step, t.state()) for n, t in run.model.tables().items()}
    return tables, [variable.numpy() for variable in run.model.dense_variables()]


def assert_equal_models(one, other):
    (tables, variables), (other_tables, other_variables) = state_of(one), state_of(other)
    assert tables == other_tables
    for value, expected in zip(variables, other_variables, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_two_days_in_two_runs_train_what_one_run_trains_from_both(config, first_day, tmp_path):
    """Rows, optimizer state, clocks, admission, expiry, dropout: all go on, bit for bit."""
    result = train(config("day2"), tmp_path / "second", start_from=first_day)
    assert (result.first_step, result.steps) == (STEPS, 2 * STEPS)
    assert result.train.rows == ROWS
    train(config("day1", "day2"), tmp_path / "both")
    assert_equal_models(tmp_path / "second", tmp_path / "both")


def test_an_interrupted_run_that_started_from_another_ends_the_same(config, first_day, tmp_path):
    train(config("day2"), tmp_path / "straight", start_from=first_day)
    # Steps of `max_steps` are those of the run itself.
    short = train(config("day2", train={"max_steps": 3}), tmp_path / "parts", start_from=first_day)
    assert short.steps == STEPS + 3
    train(config("day2"), tmp_path / "parts", resume=True)
    assert_equal_models(tmp_path / "straight", tmp_path / "parts")


def test_a_kill_before_the_first_checkpoint_starts_from_the_other_run_again(
    config, first_day, tmp_path, capsys
):
    source = find_source(first_day, False, print).as_json()
    RunDirectory.create(tmp_path / "killed", config("day2"), source).close()
    result = train(config("day2"), tmp_path / "killed", resume=True)
    assert "no checkpoint in" in capsys.readouterr().err
    assert (result.first_step, result.steps) == (STEPS, 2 * STEPS)


def test_the_lineage_goes_on(config, first_day, tmp_path):
    before = load_run(first_day)
    train(config("day2"), tmp_path / "run", start_from=first_day)
    after = load_run(tmp_path / "run")
    assert after.lineage.descends_from(before.lineage.id, before.position.step)
    assert not before.lineage.descends_from(after.lineage.id, STEPS)


def test_a_run_may_start_from_one_checkpoint_of_another(config, tmp_path):
    often = {"every_steps": 4, "keep": 9, "asynchronous": False}
    train(config("day1", checkpoint=often), tmp_path / "run")
    path = CheckpointDirectory(tmp_path / "run" / "checkpoints", 1).of_step(4)
    assert train(config("day2"), tmp_path / "new", start_from=path).first_step == 4


def test_what_training_does_next_may_change(config, first_day, tmp_path):
    changed = config(
        "day2",
        data={"batch_size": 32},
        optimizer={"learning_rate": 0.5, "global_clipnorm": 1.0},
        model={"arch": "wide_deep", "hidden": [8], "dropout": 0.0, "l2": 0.1},
        tables={
            "default": {
                "optimizer": "adam",
                "learning_rate": {"schedule": "exponential_decay", "initial_learning_rate": 1.0,
                                  "decay_steps": 10, "decay_rate": 0.5},
                "bias_correction": "global",
            },
        },
        train={"epochs": 2, "shuffle": True},
        checkpoint={"full_every": 2},
        cache={"rows": 512},
    )  # fmt: skip
    result = train(changed, tmp_path / "run", start_from=first_day)
    assert result.steps == STEPS + 2 * (ROWS // 32)


def test_the_new_learning_rate_counts(config, first_day, tmp_path):
    """A Keras optimizer keeps its learning rate among its variables."""
    still = {"learning_rate": 1e-30}
    train(config("day2", optimizer=still), tmp_path / "run", start_from=first_day)
    for one, other in zip(state_of(first_day)[1], state_of(tmp_path / "run")[1], strict=True):
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_statistics_of_dense_columns_stay_those_of_the_first_run(config, tmp_path):
    columns = {
        "dense": {"columns": ["age"], "standardize": True},
        "sparse": {"columns": ["city", "tag"], "dim": 4},
    }
    train(config("day1", features=columns), tmp_path / "one")
    train(config("day2", features=columns), tmp_path / "two", start_from=tmp_path / "one")
    means = [load_run(tmp_path / run).model.preprocess.mean.numpy() for run in ("one", "two")]
    np.testing.assert_array_equal(*means)


def test_ranks_start_from_a_run_of_one_process_and_the_other_way_round(config, first_day, tmp_path):
    results = []

    def work(rank):
        with rank:
            ranked = config("day2", parallel={"workers": 2, "timeout_seconds": 60.0})
            results.append(train(ranked, tmp_path / "two", ranks=rank, start_from=first_day))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in thread_ranks(2, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = train(config("day2"), tmp_path / "one", start_from=first_day)
    for result in results:
        assert (result.first_step, result.steps) == (STEPS, 2 * STEPS)
        assert result.rows["city"] == alone.rows["city"]
        assert result.train.logloss == pytest.approx(alone.train.logloss, rel=0.05)
    assert len(results) == 2
    again = train(config("day1"), tmp_path / "three", start_from=tmp_path / "two")
    assert again.first_step == 2 * STEPS


def test_the_command_says_where_it_starts_and_refuses_what_makes_no_sense(
    folder, first_day, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(values_of(folder)))
    command = ["train", "m.yaml", "--from", str(first_day)]
    assert main([*command, "--resume"]) == 2
    assert "--from starts a new run, --resume continues one" in capsys.readouterr().err
    assert main(["train", "m.yaml", "--force"]) == 2
    assert "--force without --from" in capsys.readouterr().err
    assert main([*command, "--set", "seed=7"]) == 2
    assert "seed: the run in" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    day = f"data.train={folder / 'day2.csv'}"
    assert main([*command, "--set", day, "--run-dir", "day2", "--json", "result.json"]) == 0
    printed = capsys.readouterr()
    assert f"starting from {first_day.resolve()} at step {STEPS}" in printed.err
    assert f"{STEPS} steps after {STEPS}, " in printed.out
    assert json.loads((tmp_path / "result.json").read_text())["first_step"] == STEPS
    print(printed.err, printed.out)
    assert main(["inspect", "day2"]) == 0
    assert f"started from: {first_day.resolve()}/checkpoints/step-" in capsys.readouterr().out


SPARSE = [{"columns": ["city"], "dim": 4}, {"columns": ["tag"], "dim": 4}]
ADAM = {"optimizer": "adam", "bias_correction": "global"}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"seed": 6}, "seed: the run in .* has 5, now it is 6"),
        ({"optimizer": {"name": "adagrad"}}, "optimizer.name: .* has 'adam', now it is 'adagrad'"),
        ({"model": {"arch": "wide_deep", "hidden": [9]}}, r"model.hidden: .* has \(8,\), now"),
        (
            {"features": {"sparse": [SPARSE[0], {"columns": ["tag"], "dim": 5}]}},
            "features.sparse: dim of column 'tag': .* has 4, now it is 5",
        ),
        (
            {"features": {"sparse": [SPARSE[0], {"columns": ["tag"], "dim": 4, "hash": False}]}},
            "features.sparse: hash of column 'tag': .* has True, now it is False",
        ),
        (
            {"features": {"sparse": SPARSE[::-1]}},
            r"features.sparse.columns: .* has \['city'",
        ),
        ({"tables": {"tag": ADAM | {"dtype": "float16"}}}, "tables.tag.dtype: .* has 'float32'"),
        ({"tables": {"city": {"optimizer": "sgd"}}}, "tables.city.optimizer: .* has 'adam'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_gives_rows_their_meaning_may_not_change(config, first_day, tmp_path, sections, said):
    with pytest.raises(InvalidArgumentError, match=f"^{said}.*--force to drop"):
        train(config("day2", **sections), tmp_path / "run", start_from=first_day)
    assert not (tmp_path / "run").exists()


def test_sizes_of_a_vocabulary_may_grow_and_not_shrink(config):
    def sized(size):
        columns = {"dense": {"columns": ["age"]}, "sparse": {"columns": ["tag"], "dim": 4,
                   "hash": False}}  # fmt: skip
        return config("day1", features=columns, tables={"tag": {"vocabulary_size": size}})

    assert [d.key for d in differences_of(sized(50), sized(40))] == ["tables.tag.vocabulary_size"]
    assert not list(differences_of(sized(50), sized(60)))
    assert not list(differences_of(sized(50), sized(None)))


def test_force_drops_what_does_not_fit_by_name_and_keeps_the_rest(
    config, first_day, tmp_path, capsys
):
    wider = {"sparse": [SPARSE[0], {"columns": ["tag"], "dim": 4, "hash": False}]}
    changed = config(
        "day2",
        features={"dense": {"columns": ["age"], "transform": "log"}, **wider},
        model={"arch": "wide_deep", "hidden": [8, 4], "dropout": 0.2},
        train={"max_steps": 1},
    )
    result = train(changed, tmp_path / "run", start_from=first_day, force=True)
    said = capsys.readouterr().err
    assert "dropped: the rows of table 'tag', whose keys are made in another way now" in said
    assert "dropped: the rows of table 'tag/wide'" in said
    assert "(shape [8, 1] before, [4, 1] now)" in said
    assert "dropped: the state of the dense optimizer" in said
    assert "incremental exports do not go on" in said
    kept = load_run(first_day).model.tables()
    assert result.rows["city"] >= kept["city"].size > 0
    assert result.rows["tag"] < kept["tag"].size
    lineage = load_run(tmp_path / "run").lineage
    assert not lineage.descends_from(load_run(first_day).lineage.id, STEPS)


def test_nothing_that_fits_is_refused_with_force_too(folder, first_day, tmp_path):
    values = values_of(folder, "day2", model={"arch": "dlrm", "bottom": [3]})
    values["features"]["sparse"] = {"columns": ["age"], "dim": 3, "buckets": "log"}
    del values["tables"]["tag"]
    other = parse_config(values)
    with pytest.raises(FailedPreconditionError, match=r"nothing of .* fits the model, --force or"):
        train(other, tmp_path / "run", start_from=first_day, force=True)
    assert not (tmp_path / "run").exists()


def test_another_admission_counts_anew_and_says_so(config, first_day, tmp_path, capsys):
    bloom = {"occurrences": 2, "filter": "bloom", "expected_keys": 100}
    changed = config("day2", tables={"tag": {**ADAM, "admission": bloom}})
    train(changed, tmp_path / "run", start_from=first_day)
    assert "table 'tag' has another admission now" in capsys.readouterr().err
    assert load_run(tmp_path / "run").model.tables()["tag"].step == 2 * STEPS


def test_a_run_starts_from_another_one_that_has_a_checkpoint(config, first_day, tmp_path):
    with pytest.raises(NotFoundError, match="no run in"):
        train(config("day2"), tmp_path / "run", start_from=tmp_path / "none")
    RunDirectory.create(tmp_path / "begun", config("day1")).close()
    with pytest.raises(FailedPreconditionError, match="has no checkpoint yet"):
        train(config("day2"), tmp_path / "run", start_from=tmp_path / "begun")
    with pytest.raises(AlreadyExistsError, match="holds a run already"):
        train(config("day2"), first_day, start_from=first_day)
    assert not (tmp_path / "run").exists()
    note = json.loads(json.dumps(find_source(first_day, False, print).as_json()))
    assert note["step"] == STEPS
