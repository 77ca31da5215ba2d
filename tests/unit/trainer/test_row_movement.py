"""A warning where the first steps hardly move the rows of tables."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow.config import parse_config
from hotrow.trainer.loop import train

ROWS = 40 * 16


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    rng = np.random.default_rng(1)
    user, item = rng.integers(0, 40, (2, ROWS))
    label = (rng.random(ROWS) < np.where((user + item) % 3 == 0, 0.8, 0.2)).astype(int)
    path = tmp_path_factory.mktemp("data") / "clicks.csv"
    rows = zip(label, user, item, strict=True)
    path.write_text("label,user,item\n" + "".join(f"{y},{u},{i}\n" for y, u, i in rows))
    return path


def warnings_of(clicks, run_dir, capsys, **table):
    config = {
        "name": "m",
        "data": {"format": "csv", "train": str(clicks), "batch_size": 16},
        "features": {"sparse": {"columns": ["user", "item"], "dim": 4}},
        "model": {"arch": "wide_deep", "hidden": [8]},
        "tables": {"default": table},
    }
    train(parse_config(config), run_dir)
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


@pytest.mark.parametrize(
    ("table", "advice"),
    [
        (
            {"initial_accumulator": 1000.0},
            "lower its initial_accumulator (1000; the default is 1e-6)",
        ),
        ({"optimizer": "sgd", "learning_rate": 1e-4}, "raise its learning_rate (0.0001)"),
    ],
    ids=["Adagrad that starts large", "SGD with small steps"],
)
def test_frozen_rows_give_one_line_that_says_what_to_set(clicks, tmp_path, capsys, table, advice):
    (line,) = warnings_of(clicks, tmp_path / "run", capsys, **table)
    assert line.startswith("warning: 30 steps moved the rows of table '")
    assert line.endswith(f"so AUC may stay low; {advice}")


@pytest.mark.parametrize("table", [{}, {"optimizer": "adam"}], ids=["default", "Adam"])
def test_rows_that_move_give_no_line(clicks, tmp_path, capsys, table):
    assert warnings_of(clicks, tmp_path / "run", capsys, **table) == []


def test_tables_that_start_at_a_constant_or_by_a_schedule_are_not_judged(clicks, tmp_path, capsys):
    frozen = {"initial_accumulator": 1000.0, "initializer": {"constant": 0.5}}
    assert warnings_of(clicks, tmp_path / "constant", capsys, **frozen) == []
    falling = {"schedule": "cosine_decay", "initial_learning_rate": 0.1, "decay_steps": 9}
    scheduled = {"initial_accumulator": 1000.0, "learning_rate": falling}
    assert warnings_of(clicks, tmp_path / "schedule", capsys, **scheduled) == []
