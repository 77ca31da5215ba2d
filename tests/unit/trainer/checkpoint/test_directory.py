"""Which checkpoints there are, which stay, and which one is restored."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from unit.trainer.checkpoint.trained import (
    Trained,
    assert_equal_states,
    config_of,
    flip_a_bit,
    truncate,
)

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.sealed_directory import seal_of
from hotrow.trainer.checkpoint import Position, table_files


def incremental(keep=3, full_every=3):
    return config_of(checkpoint={"keep": keep, "full_every": full_every})


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    straight = Trained(tmp_path / "none")
    straight.train(0, 6)
    first = Trained(tmp_path / "c")
    first.train(0, 4)
    first.save(4, epoch=1, batch=2)
    second = Trained(tmp_path / "c")
    second.train(0, 1)  # what it held before is replaced
    assert second.restore() == Position(step=4, epoch=1, batch=2)
    second.assert_equals(first)
    second.train(4, 6)
    second.assert_equals(straight)


@pytest.mark.parametrize("full_every", [1, 3, 10])
def test_rows_clocks_counts_and_places_survive_chains_of_increments(tmp_path, full_every):
    config = incremental(full_every=full_every)
    trained = Trained(tmp_path, config)
    for step in range(1, 8):
        trained.train(step, step + 1)
        trained.save(step)
    again = Trained(tmp_path, config)
    assert again.restore() == Position(7)
    again.assert_equals(trained)
    for name, rows in trained.rows().items():
        for one, other in zip(rows, again.rows()[name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_increment_holds_what_changed_and_builds_on_what_is_below(tmp_path):
    trained = Trained(tmp_path, incremental(keep=9, full_every=3))
    facts = []
    for step in range(1, 6):
        trained.train(step, step + 1)
        facts.append(json.loads((trained.save(step) / "manifest.json").read_text()))
    assert [f["kind"] for f in facts] == ["full", "increment", "increment", "full", "increment"]
    names = [f"step-{step:08d}" for step in range(1, 6)]
    assert [f["parents"] for f in facts] == [[], names[:1], names[:2], [], names[3:4]]
    assert [f["base"] for f in facts] == [*(3 * names[:1]), *(2 * names[3:4])]
    for number, fact in enumerate(facts):
        table = fact["tables"]["C1"]
        fresh = len(np.unique(np.random.default_rng(number + 1).normal(size=(16, 1))))
        assert table["rows"] == table["size"] if fact["kind"] == "full" else table["rows"] <= fresh
    assert facts[2]["tables"]["C1"]["rows"] < facts[2]["tables"]["C1"]["size"]


def test_a_table_larger_than_a_piece_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "PIECE_BYTES", 200)
    trained = Trained(tmp_path)
    trained.train(0, 3)
    path = trained.save(3)
    assert len(list((path / "tables").glob("C1-*.safetensors"))) > 5
    again = Trained(tmp_path)
    again.restore()
    again.assert_equals(trained)


def test_the_newest_checkpoints_are_kept(tmp_path):
    trained = Trained(tmp_path, config_of(checkpoint={"keep": 2}))
    for step in range(1, 5):
        trained.train(step, step + 1)
        trained.save(step)
    assert trained.directory.steps() == [3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_what_a_kept_increment_builds_on_is_kept(tmp_path):
    trained = Trained(tmp_path, incremental(keep=2, full_every=4))
    left = []
    for step in range(1, 8):
        trained.train(step, step + 1)
        trained.save(step)
        left.append(trained.directory.steps())
    assert left == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [5, 6], [5, 6, 7]]


def test_a_damaged_checkpoint_does_not_count_as_kept(tmp_path):
    trained = Trained(tmp_path, config_of(checkpoint={"keep": 2}))
    for step in (1, 2, 3):
        trained.train(step, step + 1)
        trained.save(step)
    truncate(trained.directory.of_step(3) / "model.safetensors", 5)
    trained.train(4, 5)
    trained.save(4)
    assert trained.directory.steps() == [2, 4]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoints of steps 1 and 2, and the state that each is of."""
    path = tmp_path_factory.mktemp("written")
    trained, states = Trained(path), {}
    for step in (1, 2):
        trained.train(step, step + 1)
        trained.save(step)
        states[step] = trained.state()
    return path, states


@pytest.fixture(scope="module")
def reused():
    """A model to restore into; making one takes longer than all else in a test."""
    return Trained("/none")


@pytest.fixture
def reader(written, reused, tmp_path):
    """A model that reads copies of the checkpoints of steps 1 and 2, and is at another step."""
    shutil.copytree(written[0], tmp_path / "c")
    reused.move_to(tmp_path / "c").train(7, 8)
    return reused


FILES = [
    "manifest.json",
    "model.safetensors",
    "optimizer.safetensors",
    "metrics.safetensors",
    "random.json",
    "tables/C1-00000.safetensors",
    "tables/C1.state",
    "tables/C2%2Fwide-00000.safetensors",
]


def test_the_list_of_files_has_one_of_each_kind(written):
    path = written[0] / "step-00000002"
    found = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}
    assert set(FILES) <= found
    kinds = re.compile(r"C[12](%2Fwide)?")
    assert {kinds.sub("", name) for name in found} == {kinds.sub("", name) for name in FILES}


DAMAGES = {
    "cut at 0": lambda path: truncate(path, 0),
    "cut at 1": lambda path: truncate(path, 1),
    "cut in the middle": lambda path: truncate(path, path.stat().st_size // 2),
    "cut at the last byte": lambda path: truncate(path, path.stat().st_size - 1),
    "bit flipped": flip_a_bit,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_gives_way_to_the_checkpoint_before_or_is_data_loss_and_never_loads_a_part(
    reader, written, file, damage
):
    damage(reader.directory.of_step(2) / file)
    lines = []
    assert reader.restore(lines.append) == Position(1)
    assert len(lines) == 1
    assert "checkpoint of step 2 is not usable" in lines[0]
    assert file in lines[0]
    assert_equal_states(reader.state(), written[1][1])
    damage(reader.directory.of_step(1) / file)
    reader.train(7, 9)
    before = reader.state()
    with pytest.raises(DataLossError, match=r"no usable checkpoint in .*: all 2 are damaged"):
        reader.restore(lambda line: None)
    assert_equal_states(reader.state(), before)


@pytest.mark.parametrize("kind", ["gone", "another one", "damaged"])
def test_an_increment_falls_with_what_it_builds_on(tmp_path, kind):
    config = incremental(keep=9, full_every=2)
    trained = Trained(tmp_path, config)
    for step in range(1, 5):
        trained.train(step, step + 1)
        trained.save(step)
    base = trained.directory.of_step(3)
    match kind:
        case "gone":
            base.rename(tmp_path / "elsewhere")
        case "damaged":
            flip_a_bit(base / "tables" / "C1-00000.safetensors")
        case _:
            facts = json.loads((base / "manifest.json").read_text())
            facts.pop("seal")
            facts["environment"] = {"hotrow": "0"}
            (base / "manifest.json").write_text(json.dumps({**facts, "seal": seal_of(facts)}))
            (base / "tables").touch()
    again = Trained(tmp_path, config)
    lines = []
    found = again.restore(lines.append)
    if kind == "another one":  # it is good itself
        assert found == Position(3)
        assert "step-00000004 builds on another step-00000003" in lines[0]
    else:
        assert found == Position(2)
        assert "step-00000004 builds on step-00000003: " in lines[0]


def test_what_only_the_base_needs_may_be_damaged(tmp_path):
    config = incremental(keep=9)
    trained = Trained(tmp_path, config)
    for step in (1, 2):
        trained.train(step, step + 1)
        trained.save(step)
    flip_a_bit(trained.directory.of_step(1) / "model.safetensors")
    again = Trained(tmp_path, config)
    assert again.restore() == Position(2)
    again.assert_equals(trained)


def test_a_file_that_the_manifest_has_no_checksum_of_is_never_read(reader):
    path = reader.directory.of_step(2) / "manifest.json"
    facts = json.loads(path.read_text())
    facts.pop("seal")
    facts["tables"]["C1"]["files"] = ["../../../elsewhere.safetensors"]
    path.write_text(json.dumps({**facts, "seal": seal_of(facts)}))
    lines = []
    assert reader.restore(lines.append) == Position(1)
    assert "no manifest of a checkpoint" in lines[0]


def test_rows_that_are_not_those_of_the_digest_are_not_left_in_a_table(tmp_path):
    trained = Trained(tmp_path)
    trained.train(1, 3)
    path = trained.save(2) / "manifest.json"
    facts = json.loads(path.read_text())
    facts.pop("seal")
    facts["tables"]["C2/wide"]["digest"] = 32 * "0"
    path.write_text(json.dumps({**facts, "seal": seal_of(facts)}))
    lines = []
    with pytest.raises(DataLossError, match="all 1 are damaged"):
        trained.restore(lines.append)
    assert "rows of table 'C2/wide' are not those that were written" in lines[0]
    assert {table.size for table in trained.model.tables().values()} == {0}


def test_a_damaged_checkpoint_is_written_anew(reader, written):
    flip_a_bit(reader.directory.of_step(2) / "model.safetensors")
    assert reader.restore(lambda line: None) == Position(1)
    reader.train(2, 3)
    reader.save(2)
    reader.train(7, 8)
    assert reader.restore() == Position(2)
    assert_equal_states(reader.state(), written[1][2])


@pytest.mark.parametrize("keep", [1, 2])
def test_a_checkpoint_that_was_found_damaged_is_not_kept_in_place_of_a_good_one(
    reader, written, keep
):
    flip_a_bit(reader.directory.of_step(2) / "model.safetensors")
    reader.directory._keep = keep
    assert reader.restore(lambda line: None) == Position(1)
    reader.train(2, 3)
    reader.save(9)
    assert reader.directory.steps() == [1, 9][-keep:]
    reader.train(7, 8)
    assert reader.restore() == Position(9)


def test_a_good_checkpoint_is_not_removed_for_a_damaged_one_of_a_later_step(reader):
    flip_a_bit(reader.directory.of_step(2) / "model.safetensors")
    (reader.directory.of_step(2)).rename(reader.directory.of_step(20))
    reader.directory._keep = 1
    assert reader.restore(lambda line: None) == Position(1)
    reader.save(2)
    assert reader.directory.steps() == [2]
    assert reader.restore() == Position(2)


def test_no_checkpoint_at_all_is_none(tmp_path):
    assert Trained(tmp_path / "none").restore() is None
    assert not (tmp_path / "none").exists()


def test_files_of_other_names_are_no_checkpoints(tmp_path):
    for name in ("step-1", "step-0000000x", "other", "step-00000001.bak"):
        (tmp_path / name).mkdir()
    trained = Trained(tmp_path)
    assert trained.directory.steps() == []
    trained.train(1, 2)
    trained.save(1)
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("number", [1, 4, None, [2]])
def test_a_checkpoint_of_another_format_is_refused_by_name(reader, number):
    path = reader.directory.of_step(2) / "manifest.json"
    facts = json.loads(path.read_text())
    facts.pop("seal")
    facts["format"] = number
    path.write_text(json.dumps({**facts, "seal": seal_of(facts)}))
    refusal = rf"format {re.escape(str(number))}, this version .* reads 2 and 3"
    with pytest.raises(FailedPreconditionError, match=refusal):
        reader.restore()


def test_a_checkpoint_without_a_format_is_damaged(reader):
    path = reader.directory.of_step(2) / "manifest.json"
    facts = json.loads(path.read_text())
    facts.pop("seal")
    facts.pop("format")
    path.write_text(json.dumps({**facts, "seal": seal_of(facts)}))
    lines = []
    assert reader.restore(lines.append) == Position(1)
    assert "it has no format" in lines[0]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"dim": 8}, "table 'C1' was written with dim 4 and lines of 32 bytes of Adagrad"),
        ({"hidden": (9,)}, "has shape"),
        ({"hidden": (8, 8)}, "use the configuration of the run"),
        ({"default": {"optimizer": "sgd"}}, "the model has dim 4 and lines of 16 bytes of SGD"),
    ],
    ids=["other dim", "other width", "other depth", "other optimizer"],
)
def test_a_checkpoint_of_another_configuration_is_refused(written, other, line):
    trained = Trained(written[0], config_of(**other))
    with pytest.raises(FailedPreconditionError, match=line):
        trained.restore()
