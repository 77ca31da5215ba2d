"""`platform evaluate` and `platform predict` of runs and versions, and exports of older steps."""

from __future__ import annotations

import contextlib
import json
import random
import shutil

import numpy as np
import pytest

from hotrow.cli.main import main
from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.trainer.checkpoint.exported import exported_steps

CONFIG = """\
name: shop
seed: 3
data: {format: csv, train: rows.csv, batch_size: 8, delimiter: ";", label: bought, positive: "yes"}
features:
  dense: {columns: [age-years], standardize: true}
  sparse: [{columns: [city], dim: 4}, {columns: [tags], dim: 3, separator: "|", combiner: mean}]
tables: {default: {optimizer: adagrad, learning_rate: 0.3, initializer: {uniform: 0.5}}}
model: {arch: wide_deep, hidden: [8]}
optimizer: {name: adam, learning_rate: 0.05}
train: {epochs: 9, max_steps: 20}
checkpoint: {every_steps: 10, keep: 2, asynchronous: false}
"""


def rows(count):
    chance = random.Random(4)
    yield "bought;age-years;city;tags"
    for _ in range(count):
        tags = "|".join(str(chance.randint(0, 30)) for _ in range(3))
        age = chance.choice(["", chance.randint(18, 90)])
        yield f"{chance.choice(['yes', 'no'])};{age};c{chance.randint(0, 40)};{tags}"


CSV_FLAGS = ("--delimiter", ";", "--label", "bought", "--positive", "yes")


class Shop:
    """A run of 20 steps in a folder, and commands on it."""

    def __init__(self, folder):
        self.folder = folder
        self.run = folder / "run"
        self.data = folder / "rows.csv"
        self.base = folder / "models"
        self.data.write_text("\n".join(rows(160)) + "\n")
        self.config = folder / "shop.yaml"
        self.config.write_text(CONFIG.replace("rows.csv", str(self.data)))
        self.train(20)

    def train(self, steps):
        resume = ["--resume"] if self.run.exists() else []
        limit = ["--set", f"train.max_steps={steps}"]
        assert main(["train", str(self.config), "--run-dir", str(self.run), *limit, *resume]) == 0

    def export(self, *flags, code=0):
        command = ["export", str(self.run), "--to", str(self.base), "--name", "shop"]
        assert main([*command, *flags]) == code

    def report(self, command, *arguments):
        report = self.folder / "report.json"
        given = ["--data", str(self.data), "--json", str(report)]
        assert main([command, *map(str, arguments), *given]) == 0
        return json.loads(report.read_text())

    def scores(self, *arguments):
        return np.array(self.report("predict", *arguments)["scores"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Not changed by tests: version 1 with its own rows at step 20, 2 standalone at step 10."""
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.export()
    shop.export("--standalone", "--step", "10")
    return shop


@pytest.fixture
def refused(capsys):
    """Runs a command that fails; returns the one line of its error."""

    def call(*arguments, code):
        capsys.readouterr()
        assert main([*map(str, arguments)]) == code
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return call


def test_a_run_and_its_version_give_the_same_scores(shop):
    of_run = shop.report("predict", shop.run)
    assert (of_run["run"], of_run["step"], of_run["rows"]) == (str(shop.run), 20, 160)
    of_version = shop.report("predict", shop.base / "shop" / "1", *CSV_FLAGS)
    assert (of_version["model"], of_version["version"], of_version["step"]) == ("shop", 1, 20)
    assert np.std(of_run["scores"]) > 0.05
    np.testing.assert_allclose(of_run["scores"], of_version["scores"], rtol=0, atol=1e-6)


def test_evaluation_measures_a_run_and_its_versions_alike(shop, capsys):
    of_run = shop.report("evaluate", shop.run)
    assert f"run          {shop.run}, step 20" in capsys.readouterr().out
    of_version = shop.report("evaluate", shop.base / "shop" / "1", *CSV_FLAGS)
    assert "model        shop, version 1, step 20" in capsys.readouterr().out
    assert of_run["rows"] == of_version["rows"] == 160
    for name in ("auc", "logloss", "calibration", "label_mean"):
        assert of_run[name] == pytest.approx(of_version[name], abs=1e-6)
    assert of_run["auc"] > 0.6


def test_a_step_of_a_run_scores_as_the_version_that_was_exported_of_it(shop):
    older = shop.scores(shop.run, "--step", "10")
    directory = shop.run / "checkpoints" / "step-00000010"
    np.testing.assert_array_equal(older, shop.scores(shop.run, "--checkpoint", directory))
    standalone = shop.scores(shop.base / "shop" / "2", *CSV_FLAGS)
    np.testing.assert_allclose(older, standalone, rtol=0, atol=1e-5)
    assert np.abs(older - shop.scores(shop.run)).max() > 1e-3


def test_rows_without_labels_are_scored_by_a_run(shop, tmp_path):
    lines = [line.split(";", 1)[1] for line in shop.data.read_text().splitlines()]
    (tmp_path / "unlabelled.csv").write_text("\n".join(lines) + "\n")
    report = tmp_path / "scores.json"
    given = ["--data", str(tmp_path / "unlabelled.csv"), "--limit", "5", "--json", str(report)]
    assert main(["predict", str(shop.run), *given]) == 0
    scores = json.loads(report.read_text())["scores"]
    np.testing.assert_allclose(scores, shop.scores(shop.run)[:5], rtol=0, atol=1e-6)


def test_a_damaged_checkpoint_that_was_asked_for_is_not_replaced_by_another(
    shop, tmp_path, refused
):
    copy = tmp_path / "step-00000010"
    shutil.copytree(shop.run / "checkpoints" / "step-00000010", copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    line = refused("predict", shop.run, "--checkpoint", copy, "--data", shop.data, code=1)
    assert "model.safetensors" in line


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param([], 2, "neither is given: score with --server HOST:PORT --model", id="none"),
        pytest.param(
            ["RUN", "--server", "h:1", "--model", "m"], 2, "both are given", id="two sources"
        ),
        pytest.param(["--server", "h:1"], 2, "--model NAME is missing", id="no model"),
        pytest.param(["FOLDER"], 1, "is neither a run (config.yaml) nor a version", id="neither"),
        pytest.param(["RUN", "--store", "file:///x"], 2, "--store with a run", id="store of a run"),
        pytest.param(["RUN", "--step", "7"], 1, "it has: 10, 20", id="no such step"),
        pytest.param(
            ["RUN", "--step", "10", "--checkpoint", "RUN"], 2, "give one of the two", id="both"
        ),
        pytest.param(["RUN", "--checkpoint", "RUN"], 2, "is no directory step-", id="a folder"),
        pytest.param(["VERSION", "--step", "10"], 2, "--step with a version", id="version's step"),
        pytest.param(
            ["VERSION", "--signature", "scors"], 2, "has no signature 'scors'", id="signature"
        ),
    ],
)
def test_a_source_that_cannot_be_is_refused_in_one_line(shop, refused, arguments, code, text):
    places = {"RUN": shop.run, "VERSION": shop.base / "shop" / "1", "FOLDER": shop.folder}
    given = [places.get(argument, argument) for argument in arguments]
    assert text in refused("evaluate", *given, "--data", shop.data, code=code)


def test_an_export_names_the_steps_that_there_are(shop, refused):
    command = ["export", shop.run, "--to", shop.base, "--name", "shop", "--step", "11"]
    assert "--step 11: " in (line := refused(*command, code=1))
    assert line.endswith("it has: 10, 20")


def test_going_back_exports_a_step_that_a_run_has_kept(tmp_path, refused, capsys):
    shop = Shop(tmp_path)
    store = f"file://{tmp_path}/store"
    shop.export("--store", store)
    first = shop.scores(shop.base / "shop" / "1", *CSV_FLAGS)
    shop.train(60)
    shop.export("--incremental")
    # Newer ones of `keep`, and the two that were exported.
    there = sorted(path.name for path in (shop.run / "checkpoints").glob("step-*"))
    assert exported_steps(shop.run / "checkpoints") == [20, 60]
    assert "step-00000020" in there
    changed = shop.report("predict", shop.base / "shop" / "1", *CSV_FLAGS)
    assert changed["step"] == 60
    assert np.abs(np.array(changed["scores"]) - first).max() > 1e-3, "version 1 is another now"
    # An incremental export goes forward only.
    command = ["export", shop.run, "--to", shop.base, "--name", "shop", "--incremental"]
    line = refused(*command, "--step", "20", code=1)
    assert "step 20 comes before what was last exported, step 60" in line
    assert line.endswith("an incremental export goes forward only: make a full export")
    shop.export("--store", store, "--step", "20")
    np.testing.assert_array_equal(shop.scores(shop.base / "shop" / "2", *CSV_FLAGS), first)
    # Forward again, from where it went back to.
    shop.export("--incremental")
    assert shop.report("predict", shop.base / "shop" / "2", *CSV_FLAGS)["step"] == 60
    check_listing(shop, capsys)
    check_that_live_is_a_version_that_is_there(shop, store)


def check_listing(shop, capsys):
    """Both versions were exported of step 20, then brought to step 60; the second one is live."""
    capsys.readouterr()
    assert main(["inspect", str(shop.base / "shop"), "--json", "-"]) == 0
    first, second = json.loads(capsys.readouterr().out)["versions"]
    for number, version in enumerate((first, second), start=1):
        assert (version["version"], version["live"]) == (number, number == 2)
        assert (version["exported_step"], version["step"]) == (20, 60)
        assert (version["export"], version["problem"]) == ("incremental", None)
        assert version["checkpoint"] == str(shop.run / "checkpoints" / "step-00000020")
        assert version["rows"] > 0
        assert version["bytes"] > 0
        assert version["created"].endswith("Z")
    assert main(["inspect", str(shop.base / "shop")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:4] == ["version", "step", "export", "rows"]
    assert lines[4].split()[:5] == ["2", "60", "incremental", "since", "20"]
    assert main(["inspect", str(shop.base), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == [{"name": "shop", "versions": [1, 2]}]


def check_that_live_is_a_version_that_is_there(shop, url):
    """A version that is removed by hand is neither live nor kept in place of one that is there."""
    shutil.rmtree(shop.base / "shop" / "2")
    with contextlib.closing(open_store(url)) as store:
        before = Generations(store.records).model("shop")
        first, _ = Generations(store.records).all("shop")
    assert before.live != first.generation
    shop.export("--incremental")
    with contextlib.closing(open_store(url)) as store:
        assert Generations(store.records).model("shop").live == first.generation
    shop.export("--store", url)  # version 2 again
    with contextlib.closing(open_store(url)) as store:
        record = Generations(store.records).model("shop")
        there = [g.generation for g in Generations(store.records).all("shop")]
    assert (record.previous, record.live) == (there[0], there[1])
    assert first.generation == there[0], "version 1 has its rows"
    # The previous version, deleted by hand, does not count among the kept ones.
    assert main(["delete", url, "--generation", first.generation]) == 0
    shop.export("--store", url)
    assert main(["inspect", str(shop.base / "shop"), "--json", str(shop.folder / "l.json")]) == 0
    versions = json.loads((shop.folder / "l.json").read_text())["versions"]
    assert [version["live"] for version in versions] == [False, False, True]
    assert versions[0]["problem"] == "its rows were deleted from the store"
    assert [version["problem"] for version in versions[1:]] == [None, None]
