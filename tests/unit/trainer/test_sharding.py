"""The plan of a run: measured on its own first batches, kept when the run goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hotrow.config import parse_config
from hotrow.errors import DataLossError, NotFoundError
from hotrow.ops.planner import describe_plan
from hotrow.trainer import sharding
from hotrow.trainer.data import BatchStream
from hotrow.trainer.models.feature_tables import model_features
from hotrow.trainer.sharding import (
    plan_of_run,
    plan_tables,
    read_plan,
    sample_tables,
    write_plan,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    random = np.random.default_rng(0)
    lines = [
        f"{i % 2},{random.integers(0, 40)},{'|'.join(map(str, random.integers(0, 9999, i % 4)))}"
        for i in range(1000)
    ]
    path = tmp_path_factory.mktemp("data") / "train.csv"
    path.write_text("label,id,tags\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def config(data):
    def make(batch_size=64, **sections):
        values = {
            "name": "m",
            "data": {"format": "csv", "train": str(data), "batch_size": batch_size},
            "features": {
                "sparse": [
                    {"columns": ["id"], "dim": 8, "hash": False},
                    {"columns": ["tags"], "dim": 8, "hash": False, "separator": "|"},
                ],
            },
            "model": {"arch": "wide_deep", "hidden": [8]},
        }
        return parse_config(values | sections)

    return make


def test_a_plan_has_every_table_of_the_model(config):
    plan = plan_tables(config(), 2)
    assert [table.name for table in plan.tables] == ["id", "tags", "id/wide", "tags/wide"]
    assert (plan.ranks, plan.batch_size, plan.sample_batches, plan.sample_rows) == (2, 64, 15, 960)
    id_table = plan.tables[0]
    assert id_table.rows == 40
    assert id_table.lookups == 64


@pytest.mark.parametrize("arch", ["dlrm", "logistic", "wide_deep"])
def test_every_architecture_can_be_planned(config, arch):
    assert plan_tables(config(model={"arch": arch}), 3).ranks == 3


def test_the_sample_is_what_training_sees_first(config, monkeypatch):
    monkeypatch.setattr(sharding, "SAMPLE_BATCHES", 2)
    run = config(seed=4, train={"shuffle_buffer": 100})
    facts = sample_tables(run, model_features(run), 2).facts()
    stream = iter(BatchStream(run.data.train, run, shuffle_seed=4))
    batches = [next(stream).sparse["tags"] for _ in range(2)]
    halves = [np.diff(batch.row_splits[[0, 32, 64]]).tolist() for batch in batches]
    assert facts["tags"].lookups.tolist() == halves


def test_a_sample_does_not_wait_for_a_large_window(config, monkeypatch):
    monkeypatch.setattr(sharding, "SAMPLE_ROWS", 100)
    taken = []

    class Watched(BatchStream):
        def __init__(self, path, config, **options):
            taken.append(config.train.shuffle_buffer)
            super().__init__(path, config, **options)

    monkeypatch.setattr(sharding, "BatchStream", Watched)
    assert plan_tables(config(train={"shuffle_buffer": 10**6}), 2).sample_rows == 64
    assert taken == [100]


def test_a_batch_that_is_larger_than_the_data_is_measured_as_it_is(config):
    plan = plan_tables(config(batch_size=10**6), 2)
    assert (plan.sample_batches, plan.sample_rows) == (1, 1000)


def test_a_sample_has_a_batch_however_large_it_is(config, monkeypatch):
    monkeypatch.setattr(sharding, "SAMPLE_ROWS", 100)
    assert plan_tables(config(batch_size=600), 2).sample_rows == 600


def test_a_scheme_of_the_configuration_is_kept(config):
    plan = plan_tables(config(parallel={"sharding": "column"}, model={"arch": "dlrm"}), 2)
    assert plan.schemes() == {"id": "column", "tags": "column"}
    assert all(table.forced for table in plan.tables)


def test_a_scheme_of_a_table_comes_before_that_of_all(config):
    run = config(
        parallel={"sharding": "row"},
        tables={"id": {"sharding": "replicated"}, "tags": {"sharding": "auto"}},
    )
    plan = plan_tables(run, 2)
    schemes = plan.schemes()
    assert [schemes[name] for name in ("id", "id/wide", "tags/wide")] == [
        "replicated",
        "row",
        "row",
    ]
    assert [table.forced for table in plan.tables] == [True, False, True, True]


@pytest.mark.parametrize(
    ("sections", "chosen", "words"),
    [
        ({"parallel": {"staleness": 10}}, {"row", "table"}, "with staleness"),
        (
            {"cache": {"device": "gpu", "rows": 9}},
            {"row", "table", "column", "row_broadcast"},
            "with caches on GPUs",
        ),
    ],
    ids=["with staleness", "with caches on GPUs"],
)
def test_auto_has_fewer_schemes(config, tmp_path, sections, chosen, words):
    plan = plan_of_run(config(), 2, tmp_path, False, print)
    (tmp_path / "sharding.json").write_text(
        json.dumps(plan.to_dict()).replace('"scheme": "row"', '"scheme": "replicated"')
    )
    changed = config(**sections)
    assert set(plan_tables(changed, 2).schemes().values()) <= chosen
    said = []
    plan_of_run(changed, 2, tmp_path, True, said.append)
    assert "'auto' does not choose 'replicated' of table " in said[0]
    assert words in said[0]


def test_a_missing_file_is_reported(config, tmp_path):
    run = config(data={"format": "csv", "train": str(tmp_path / "none"), "batch_size": 8})
    with pytest.raises(NotFoundError, match=r"data file .*none does not exist"):
        plan_tables(run, 2)


def test_a_resumed_run_keeps_its_plan(config, tmp_path):
    said = []
    first = plan_of_run(config(), 2, tmp_path, False, said.append)
    assert read_plan(tmp_path) == first
    changed = json.loads((tmp_path / "sharding.json").read_text())
    changed["tables"][0]["scheme"] = "replicated"
    (tmp_path / "sharding.json").write_text(json.dumps(changed))
    again = plan_of_run(config(), 2, tmp_path, True, said.append)
    assert again.schemes()["id"] == "replicated"
    assert said == [describe_plan(first), describe_plan(again)]


@pytest.mark.parametrize(
    ("ranks", "sections", "why"),
    [
        (3, {}, "it was for 2 ranks, now there are 3"),
        (2, {"parallel": {"sharding": "row"}}, "asks for 'row' of table 'id'"),
        (2, {"model": {"arch": "dlrm"}}, "it was for other tables"),
    ],
)
def test_a_resumed_run_is_planned_anew_when_its_plan_does_not_fit(
    config, tmp_path, ranks, sections, why
):
    plan_of_run(config(), 2, tmp_path, False, print)
    said = []
    plan = plan_of_run(config(**sections), ranks, tmp_path, True, said.append)
    assert plan.ranks == ranks
    assert read_plan(tmp_path) == plan
    line, table = said
    assert table == describe_plan(plan)
    assert "are planned anew: " in line
    assert why in line


FULL, SPLIT = 103_000, 90_000
"""Bytes at the fullest rank, about: of the plan of least traffic, and of one with rows alone."""


def test_a_plan_fits_the_memory_of_a_rank(config, tmp_path):
    free = plan_of_run(config(), 2, tmp_path, False, print)
    assert (free.schemes()["tags"], free.memory_bytes) == ("column", pytest.approx(FULL, rel=0.01))
    said = []
    bound = plan_of_run(config(), 2, tmp_path, False, said.append, SPLIT)
    assert bound.schemes()["tags"] == "row"
    assert bound.memory_bytes < SPLIT
    assert read_plan(tmp_path).memory_budget_bytes == SPLIT
    assert said[0].splitlines()[-1].endswith(" at the fullest rank, which has room for 90.0 kB")


def test_caches_on_gpus_are_planned_without_the_host_memory(config, tmp_path):
    run = config(cache={"device": "gpu", "rows": 9})
    assert plan_of_run(run, 2, tmp_path, False, print, 10).memory_budget_bytes is None


def test_a_resumed_run_is_planned_anew_when_its_ranks_have_less_memory(config, tmp_path):
    plan_of_run(config(), 2, tmp_path, False, print, 2 * FULL)
    said = []
    assert plan_of_run(config(), 2, tmp_path, True, said.append, 1.1 * FULL) == read_plan(tmp_path)
    assert len(said) == 1
    less = plan_of_run(config(), 2, tmp_path, True, said.append, SPLIT)
    assert less.schemes()["tags"] == "row"
    assert "planned anew: its rows need 103 kB at the fullest rank, which has room " in said[1]
    plan_of_run(config(), 2, tmp_path, True, said.append, 10)  # nothing fits
    said.clear()
    plan_of_run(config(), 2, tmp_path, True, said.append, 9)
    assert len(said) == 1
    assert "the rows do not fit: " in said[0]


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"version": 9}'])
def test_a_damaged_plan_is_reported_and_replaced(config, tmp_path, content):
    (tmp_path / "sharding.json").write_text(content)
    with pytest.raises(DataLossError, match=r"sharding\.json is damaged|no sharding plan"):
        read_plan(tmp_path)
    said = []
    plan_of_run(config(), 2, tmp_path, True, said.append)
    assert len(said) == 2
    assert read_plan(tmp_path).ranks == 2


def test_a_run_of_one_process_that_goes_on_with_more_is_planned(config, tmp_path):
    said = []
    plan_of_run(config(), 2, tmp_path, True, said.append)
    assert said[0] == f"the tables of {tmp_path} are planned anew: it has no sharding.json"


def test_a_plan_that_cannot_be_written_is_reported(config, tmp_path):
    plan = plan_tables(config(), 2)
    with pytest.raises(OSError, match="No such file"):
        write_plan(tmp_path / "none", plan)
