"""Values that are not finite: rows stay, runs end by name, checkpoints are not spoiled."""

from __future__ import annotations

import numpy as np
import pytest
from unit.trainer.ranked_training import newest, train_on

from hotrow.config import parse_config
from hotrow.errors import FailedPreconditionError
from hotrow.sealed_directory import read_manifest
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.loop import train
from hotrow.trainer.run_directory import read_metrics

ROWS, BATCH = 160, 16
HUGE_ROWS = (37, 101)  # of batches 3 and 7


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of which two have a weight whose gradient is too large to be squared in float32."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    random = np.random.default_rng(2)
    lines = ["label,city,shop,weight"]
    for number in range(ROWS):
        label, city, shop = random.integers(0, 2), random.integers(0, 40), random.integers(0, 40)
        weight = "1e30" if number in HUGE_ROWS else "1"
        lines.append(f"{label},c{city},s{shop},{weight}")
    path.write_text("\n".join(lines) + "\n")
    return path


def config_of(data, share=None, dense="sgd", workers=1, epochs=1, **sections):
    tables = {"learning_rate": 0.1}
    if share is not None:
        tables["max_nonfinite_share"] = share
    values = {
        "name": "m",
        "data": {
            "format": "csv",
            "train": str(data),
            "batch_size": BATCH,
            "weight": "weight",
        },
        "features": {"sparse": {"columns": ["city", "shop"], "dim": 4}},
        "tables": {"default": tables, "wide": {"sharding": "row"}},
        "model": {"arch": "wide_deep", "hidden": [4]},
        # So small that 1e30 does not move the dense weights.
        "optimizer": {"name": dense, "learning_rate": 1e-34},
        "train": {"shuffle": False, "epochs": epochs},
        "checkpoint": {"every_steps": 2, "asynchronous": False},
        "parallel": {"workers": workers, "sharding": "column", "timeout_seconds": 60.0},
    }
    return parse_config(values | sections)


def assert_finite(run_dir):
    rows = CheckpointRows(newest(run_dir))
    for name in rows.tables():
        for piece in rows.read(name, lambda _: None):
            assert rows.layout(name).finite(piece.lines).all()


def test_updates_that_are_not_finite_are_left_out_and_reported(data, tmp_path, capsys):
    result = train(config_of(data, share=0.2), tmp_path / "run")
    assert set(result.tables) == {"city", "shop", "city/wide", "shop/wide"}
    assert {metrics["nonfinite_updates"] for metrics in result.tables.values()} == {2}
    (record,) = [r for r in read_metrics(tmp_path / "run") if r["kind"] == "tables"]
    assert record["city/wide/nonfinite_updates"] == 2
    assert "city/wide': 2 of" in capsys.readouterr().err
    assert_finite(tmp_path / "run")
    entries = read_manifest(newest(tmp_path / "run"))["tables"]
    assert {entry["nonfinite_rows"] for entry in entries.values()} == {0}
    saved = [
        r["nonfinite_rows"] for r in read_metrics(tmp_path / "run") if r["kind"] == "checkpoint"
    ]
    assert set(saved) == {0}


def test_a_run_that_goes_on_counts_from_where_it_was(data, tmp_path):
    whole = train(config_of(data, share=0.2, epochs=2), tmp_path / "whole")
    train(config_of(data, share=0.2, epochs=1), tmp_path / "parts")
    # The epoch that is left has two such rows, too: more than 1 %, but not 100 %.
    resumed = train(config_of(data, share=1.0, epochs=2), tmp_path / "parts", resume=True)
    assert resumed.tables == whole.tables
    assert {metrics["nonfinite_updates"] for metrics in whole.tables.values()} == {4}


@pytest.mark.parametrize(("share", "ends"), [(None, True), (0.0, True), (1.0, False)])
def test_a_run_ends_above_the_share_of_a_table(data, tmp_path, share, ends):
    config = config_of(data, share)
    if not ends:
        train(config, tmp_path / "run")
        return
    match = (
        r"table '\w+': 2 of \d+ updates of rows \(.*%\) from step 1 to 10 were not finite, "
        r"more than tables\..*max_nonfinite_share allows .*learning_rate"
    )
    with pytest.raises(FailedPreconditionError, match=match):
        train(config, tmp_path / "run")
    assert_finite(tmp_path / "run")  # its newest checkpoint is usable
    (record,) = [r for r in read_metrics(tmp_path / "run") if r["kind"] == "tables"]
    assert record["city/wide/nonfinite_updates"] == 2
    resumed = train(config_of(data, share=1.0), tmp_path / "run", resume=True)
    assert resumed.steps == ROWS // BATCH


def test_all_ranks_end_with_the_same_error(data, tmp_path):
    results = train_on(2, config_of(data, workers=2), tmp_path / "run")
    assert [type(result) for result in results] == [FailedPreconditionError] * 2
    assert str(results[0]) == str(results[1])
    assert "max_nonfinite_share" in str(results[0])
    assert_finite(tmp_path / "run")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dense_part_that_is_not_finite_gets_no_checkpoint(data, tmp_path, ranks):
    # Adam squares gradients: its state overflows in step 3 and is NaN in step 4. Outputs are finite
    # until then.
    config = config_of(data, share=1.0, dense="adam", workers=ranks)
    if ranks == 1:
        with pytest.raises(FailedPreconditionError) as raised:
            train(config, tmp_path / "run")
        errors = [raised.value]
    else:
        errors = train_on(ranks, config, tmp_path / "run")
    for error in errors:
        assert isinstance(error, FailedPreconditionError)
        assert "the dense part is no longer finite at step 4: " in str(error)
        assert "the checkpoint of step 2 stays" in str(error)
    assert newest(tmp_path / "run").name == "step-00000002"
