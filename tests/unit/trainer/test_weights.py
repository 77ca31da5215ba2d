"""Rows and classes that count for more or less: in the loss, in metrics, as data."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import parse_config
from hotrow.errors import InvalidArgumentError
from hotrow.ops.ranks import thread_ranks
from hotrow.trainer.data import BatchStream, DataError
from hotrow.trainer.loop import train
from hotrow.trainer.metrics import BinaryMetrics
from hotrow.trainer.run_directory import read_metrics
from hotrow.trainer.trained_run import load_run

ROWS = 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows with weights of 2, some of 0 to 3, and weights that are none."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(2)
    columns = {
        "label": random.integers(0, 2, ROWS),
        "city": [f"c{n}" for n in random.integers(0, 20, ROWS)],
        "two": np.full(ROWS, 2),
        "some": random.integers(0, 7, ROWS) / 2,
    }
    names = list(columns)
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / "rows.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder


def config_of(path, rate=1.0, weight=None, **sections):
    values = {
        "name": "m",
        "data": {
            "format": "csv",
            "train": str(path),
            "valid": str(path),
            "batch_size": 16,
            "weight": weight,
        },
        "features": {"sparse": {"columns": ["city"], "dim": 4}},
        "tables": {"default": {"optimizer": "sgd", "learning_rate": rate}},
        "model": {"arch": "wide_deep", "hidden": [4]},
        "optimizer": {"name": "sgd", "learning_rate": rate},
        "train": {"shuffle_buffer": 40},
    }
    for name, section in sections.items():
        values[name] = {**values[name], **section}
    return parse_config(values)


def weights_of(run_dir):
    model = load_run(run_dir).model
    tables = {name: table.digest(weights_only=True) for name, table in model.tables().items()}
    return tables, [variable.numpy().tolist() for variable in model.dense_variables()]


@pytest.fixture(scope="module")
def unweighted(folder):
    return train(config_of(folder / "rows.csv"), folder / "unweighted")


@pytest.mark.parametrize(
    ("file", "sections"),
    [
        ("rows.csv", {"weight": "two"}),
        ("rows.parquet", {"weight": "two"}),
        ("rows.csv", {"train": {"class_weight": {0: 2.0, "1": 2.0}}}),
    ],
    ids=["a column", "a column of Parquet", "classes"],
)
def test_a_loss_of_twice_the_weight_takes_half_the_learning_rate(
    folder, unweighted, tmp_path, file, sections
):
    """A factor of 2 is exact in binary: so are the rows and weights, bit for bit."""
    result = train(config_of(folder / file, rate=0.5, **sections), tmp_path / "run")
    assert weights_of(tmp_path / "run") == weights_of(unweighted.run_dir)
    assert (result.train, result.valid) == (unweighted.train, unweighted.valid)


def test_one_class_alone_may_weigh_more(folder, unweighted, tmp_path):
    result = train(
        config_of(folder / "rows.csv", train={"class_weight": {1: 9.0}}), tmp_path / "run"
    )
    assert result.valid.calibration > 1.2 * unweighted.valid.calibration
    assert result.valid.label_mean == unweighted.valid.label_mean  # metrics do not change


def test_metrics_count_rows_by_their_weights():
    random = np.random.default_rng(1)
    labels, logits = random.integers(0, 2, 60), np.round(random.normal(size=60), 1)
    weights = random.integers(0, 4, 60)
    for exact_rows in (1000, 10):
        weighted, repeated = BinaryMetrics(exact_rows), BinaryMetrics(exact_rows)
        for part in (slice(0, 25), slice(25, 60)):
            weighted.update(labels[part], logits[part], weights[part])
            goes_on = BinaryMetrics(exact_rows)
            goes_on.set_state(weighted.state())
            weighted = goes_on
        repeated.update(np.repeat(labels, weights), np.repeat(logits, weights))
        one, other = weighted.result().as_dict(), repeated.result().as_dict()
        assert (one.pop("rows"), other.pop("rows")) == (60, weights.sum())
        assert one == pytest.approx(other, abs=1e-12)


def test_an_interrupted_weighted_run_ends_the_same_on_ranks_too(folder, tmp_path):
    def config(steps=None, workers=1):
        return config_of(
            folder / "rows.csv", weight="some", rate=0.1, train={"max_steps": steps}
        ).model_copy(update={"parallel": parse_parallel(workers)})

    straight = train(config(), tmp_path / "one")
    train(config(4), tmp_path / "parts")
    parts = train(config(), tmp_path / "parts", resume=True)
    assert (parts.train, parts.valid) == (straight.train, straight.valid)
    assert weights_of(tmp_path / "parts") == weights_of(tmp_path / "one")
    results = []

    def work(rank):
        with rank:
            results.append(train(config(workers=2), tmp_path / "two", ranks=rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in thread_ranks(2, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        for one, other in ((result.train, straight.train), (result.valid, straight.valid)):
            found, expected = one.as_dict(), other.as_dict()
            # Scores of one city are ties, which the order of sums may break.
            assert found.pop("auc") == pytest.approx(expected.pop("auc"), abs=5e-3)
            assert found == pytest.approx(expected, rel=1e-4)
    assert len(results) == 2
    assert {r["kind"] for r in read_metrics(tmp_path / "two")} >= {"train", "valid"}


def parse_parallel(workers):
    return config_of("/none").parallel.model_copy(update={"workers": workers})


@pytest.mark.parametrize("bad", ["-1", "", "much", "nan", "inf"])
def test_a_weight_that_is_none_is_a_malformed_row(tmp_path, bad):
    path = tmp_path / "rows.csv"
    path.write_text(f"label,city,w\n1,a,1\n0,b,{bad}\n1,c,0\n")
    said = rf"line 3: w is '{bad}', not a weight, a finite number of at least 0"
    with pytest.raises(DataError, match=said):
        list(BatchStream(str(path), config_of(path, weight="w")))
    (batch,) = BatchStream(str(path), config_of(path, weight="w", data={"on_malformed": "skip"}))
    assert batch.weights.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"weight": "city"}, "data.weight: column 'city' is a feature, too"),
        ({"weight": "label"}, "data.weight: column 'label' is the label, too"),
        ({"weight": "w", "data": {"columns": ["label", "city"]}}, "weight 'w' is not one of"),
        ({"train": {"class_weight": {2: 1.0}}}, "class_weight"),
        ({"train": {"class_weight": {1: -1.0}}}, "class_weight.*-1"),
    ],
)
def test_settings_of_weights_that_cannot_be_are_refused(sections, said):
    with pytest.raises(InvalidArgumentError, match=said):
        config_of("/none", **sections)


def test_a_file_without_the_weights_is_refused_by_name(folder):
    config = config_of(folder / "rows.csv", weight="wieght")
    with pytest.raises(InvalidArgumentError, match="has no column 'wieght'"):
        BatchStream(config.data.train, config)
