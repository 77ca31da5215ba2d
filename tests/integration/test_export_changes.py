"""Incremental exports of runs and of Keras models: the store then holds what was trained."""

from __future__ import annotations

import contextlib
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from integration.stored_tables import check_rows

import hotrow
from hotrow.cli.main import main
from hotrow.manifest import read_manifest
from hotrow.ops import library
from hotrow.sealed_directory import MANIFEST, seal_of
from hotrow.sealed_directory import read_manifest as read_sealed
from hotrow.store import open_store
from hotrow.store.cut_dense import unpack
from hotrow.store.cuts import cuts_of, dense_of, read_blocks
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.lmdb import LmdbStore
from hotrow.store.readers import use
from hotrow.trainer.checkpoint.exported import EXPORTED
from hotrow.trainer.data import encode, open_data
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import load_run

NOT_TAKEN = 3  # exit code when servers have not taken an incremental export in time

CONFIG = """\
name: shop
seed: 3
data: {format: csv, train: rows.csv, batch_size: 8}
features:
  dense: {columns: [age], standardize: true}
  sparse:
    - {columns: [city], dim: 4}
    - {columns: [tags], dim: 3, separator: "|", combiner: mean}
tables:
  default: {optimizer: adagrad, learning_rate: 0.3, initializer: {uniform: 0.5}}
  tags: {expiry: {after_steps: 6, sweep_steps: 1}, admission: {occurrences: 2}}
model: {arch: wide_deep, hidden: [8]}
optimizer: {name: adam, learning_rate: 0.05}
train: {epochs: 50, shuffle: false}
checkpoint: {every_steps: 4, full_every: 3, keep: 9, asynchronous: false}
"""


def rows_of(count):
    """Keys drift, so that some are never met again and expire."""
    chance = random.Random(4)
    yield "label,age,city,tags"
    for row in range(count):
        tags = "|".join(str(row // 4 + chance.randint(0, 30)) for _ in range(3))
        yield f"{chance.randint(0, 1)},{chance.randint(18, 90)},c{chance.randint(0, 40)},{tags}"


class Work:
    """A run in a folder, trained so far at a time, and its exports."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url
        (folder / "rows.csv").write_text("\n".join(rows_of(640)) + "\n")
        (folder / "shop.yaml").write_text(CONFIG.replace("rows.csv", str(folder / "rows.csv")))

    def train(self, steps, run="run", start_from=None):
        resume = ["--resume"] if (self.folder / run / "config.yaml").exists() else []
        if start_from is not None:
            resume = ["--from", str(self.folder / start_from)]
        limit = ["--set", f"train.max_steps={steps}"]
        command = ["train", str(self.folder / "shop.yaml"), "--run-dir", str(self.folder / run)]
        assert main([*command, *limit, *resume]) == 0

    def export(self, *flags, run="run", refused=False):
        facts = self.folder / "facts.json"
        command = ["export", str(self.folder / run), "--to", str(self.folder / "models")]
        ended = main([*command, "--name", "shop", "--json", str(facts), *flags])
        if refused:
            assert ended not in (0, NOT_TAKEN)
            return None
        reported = json.loads(facts.read_text())
        assert ended == (NOT_TAKEN if reported.get("waiting_for") else 0)
        return reported

    def changes(self, *flags, run="run", refused=False):
        return self.export("--incremental", *flags, run=run, refused=refused)

    @contextlib.contextmanager
    def stored(self, version=1):
        """Gives the version's store and generation."""
        manifest = read_manifest(self.version(version) / "assets" / "hotrow_manifest.json")
        store = open_store(self.url)
        yield store, Generations(store.records).get(manifest.generation)
        store.close()

    def version(self, number=1):
        return self.folder / "models" / "shop" / str(number)

    def check_rows(self, run="run"):
        """Compares every row of the store with the trained tables, bit for bit."""
        tables = load_run(self.folder / run).model.tables()
        with self.stored() as (store, generation):
            check_rows(store, generation, tables)


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path, f"file://{tmp_path}/store")


@pytest.mark.parametrize(
    ("place", "row_type"),
    [
        pytest.param("lmdb", "int8", marks=pytest.mark.slow),
        pytest.param("redis_server", "float32", marks=pytest.mark.slow),
        ("redis_cluster", "bfloat16"),
    ],
)
def test_the_store_holds_what_was_trained_on_bit_for_bit_with_expired_rows_gone(
    place, row_type, request, work, capsys
):
    if place != "lmdb":
        work.url = request.getfixturevalue(place).url
    work.train(20)
    work.export("--store", work.url, "--row_type", row_type)
    work.check_rows()
    work.train(30)
    reported = work.changes()
    assert reported["committed"]
    assert (reported["version"], reported["waiting_for"], reported["cut"]["step"]) == (1, [], 30)
    assert reported["cut"]["rows"] > 0
    assert reported["cut"]["removed"] > 0
    work.check_rows()
    out = capsys.readouterr().out
    assert f"Committed step 30: {reported['cut']['rows']} rows changed" in out
    assert "Exported shop version 1: step 30, all servers have taken it" in out
    work.train(33)  # across a checkpoint that is an increment
    assert work.changes()["cut"]["step"] == 33
    work.check_rows()
    again = work.changes()
    assert not again["committed"]
    assert "shop version 1 has step 33 already: nothing new" in capsys.readouterr().out
    with work.stored() as (store, generation):
        (cut,) = cuts_of(store.records, generation)
        assert (cut.step, cut.folded, f"{cut.version:016x}") == (33, True, again["cut"]["version"])


def test_keys_that_expired_before_training_knew_of_the_export_are_removed(work, capsys):
    """A checkpoint is exported while training is further on: it has kept no tombstones yet."""
    work.train(20)
    work.export("--store", work.url, "--step", "12")
    work.train(30)
    tags = load_run(work.folder / "run").model.tables()["tags"]
    assert 12 < tags.forgotten_step <= 20
    exported = work.folder / "run" / "checkpoints" / EXPORTED
    known = exported.read_text()
    exported.write_text(json.dumps({"steps": []}))
    work.changes(refused=True)
    error = capsys.readouterr().err
    assert "table 'tags' has forgotten which keys expired" in error
    assert "the last export is of step 12; make a full export" in error
    exported.write_text(known)
    assert work.changes()["cut"]["removed"] > 0
    work.check_rows()
    # From here on the tables know themselves.
    work.train(38)
    assert load_run(work.folder / "run").model.tables()["tags"].forgotten_step <= 30
    work.changes()
    work.check_rows()


def test_a_cut_has_only_rows_that_changed_and_those_of_the_step_behind_the_last_export(work):
    work.train(20)
    work.export("--store", work.url)
    with work.stored() as (store, generation), use(store.records, generation.generation, "me"):
        work.train(21)  # one batch of 8 rows more
        reported = work.changes("--wait_seconds", "0")
        assert reported["waiting_for"] == ["me"]
        run = load_run(work.folder / "run")
        (cut,) = cuts_of(store.records, generation)
        assert cut.clocks == (21, 21, 21, 21)
        for number, stored in enumerate(generation.tables):
            table = run.model.tables()[stored.name]
            changed = {
                int(key): row.tobytes()
                for batch in table.export_batches()
                for key, row, clock in zip(batch.keys, batch.weights, batch.clocks, strict=True)
                if clock == 21
            }
            found = {
                int(key): row.tobytes()
                for block in read_blocks(store, generation, cut, cut.places)
                if block.table == number
                for key, row, version in zip(block.keys, block.rows, block.versions, strict=True)
                if version == cut.version
            }
            assert found == changed
            assert 0 < len(changed) < table.size
    assert not work.changes()["committed"]
    work.check_rows()


def test_changes_of_a_run_that_started_from_the_exported_one_go_on(work):
    """Tomorrow's data: another run directory, the same version on the servers."""
    work.train(12)
    work.export("--store", work.url)
    work.train(9, run="tomorrow", start_from="run")
    cut = work.changes(run="tomorrow")["cut"]
    assert cut["step"] == 21
    assert (
        0
        < cut["rows"]
        < sum(t.size for t in load_run(work.folder / "tomorrow").model.tables().values())
    )
    assert cut["removed"] > 0
    work.check_rows(run="tomorrow")
    # The run of yesterday went another way since.
    work.train(16)
    work.changes(refused=True)


def test_the_version_restores_the_weights_of_a_cut_by_its_own_operation(work, tmp_path):
    work.train(8)
    work.export("--store", work.url)
    work.train(24)
    work.changes()
    run = load_run(work.folder / "run")
    with work.stored() as (store, generation):
        (cut,) = cuts_of(store.records, generation)
        prefix = unpack(dense_of(store, generation, cut), tmp_path)
    library.load()
    raw = next(
        iter(
            open_data(work.folder / "rows.csv", run.config.data, run.config.features).raw_batches(
                200
            )
        )
    )
    offline = tf.sigmoid(run.model(model_inputs(encode(raw, run.config.features)))).numpy()
    with (
        hotrow.bind(work.version()) as bound,
        tf.Graph().as_default(),
        tf.compat.v1.Session() as session,
    ):
        bound.load()  # so that lookups of this process show the cut
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(work.version()))
        signature = graph.signature_def["serving_default"]

        def scores():
            feed = {signature.inputs[n].name: values for n, values in raw.columns.items()}
            return session.run(signature.outputs["scores"].name, feed)

        assert np.abs(scores() - offline).max() > 1e-3, "new rows, old weights"
        saver = graph.saver_def
        session.run(saver.restore_op_name, {saver.filename_tensor_name: str(prefix)})
        np.testing.assert_allclose(scores(), offline, rtol=0, atol=1e-6)


def test_inspect_shows_the_cuts_of_a_store_and_of_a_version(work, capsys):
    work.train(8)
    work.export("--store", work.url)
    work.train(12)
    with work.stored() as (store, generation), use(store.records, generation.generation, "me"):
        cut = work.changes("--wait_seconds", "0")["cut"]
        capsys.readouterr()
        assert main(["inspect", work.url]) == 0
        metrics = f"step 12, {cut['rows']:,} rows, {cut['removed']:,} removed"
        assert f"  cut {cut['version']}: {metrics}, staged\n" in capsys.readouterr().out
    work.changes()
    capsys.readouterr()
    assert main(["inspect", str(work.version())]) == 0
    shown = f"version {cut['version']}, step 12, rows {cut['rows']}, removed {cut['removed']}"
    printed = " ".join(capsys.readouterr().out.split())
    assert f"cuts: {shown}, folded True" in printed
    assert main(["inspect", work.url, "--json", "-"]) == 0
    reported = json.loads(capsys.readouterr().out)
    (of,) = reported["generations"]
    assert of["generation"] == generation.generation
    assert of["cuts"] == [{**cut, "folded": True}]


def test_what_a_store_has_lost_that_went_back_in_time_is_exported_again(work, capsys):
    work.train(8)
    work.export(f"--store={work.url}")
    store, before = work.folder / "store", work.folder / "before"
    shutil.copytree(store, before)
    work.train(12)
    lost = work.changes()["cut"]
    shutil.rmtree(store)
    shutil.copytree(before, store)
    capsys.readouterr()
    work.changes("--step", "8", refused=True)
    refusal = capsys.readouterr().err
    assert "step 12 (in a cut that the store has lost as it went back in time)" in refusal
    assert "make a full export" in refusal
    again = work.changes()
    assert again["committed"]
    assert int(again["cut"]["version"], 16) > int(lost["version"], 16)
    work.check_rows()
    published = json.loads((work.folder / "models" / "shop" / "published-1.json").read_text())
    assert [cut["step"] for cut in published["cuts"]] == [12, 12]
    assert not work.changes()["committed"]


def test_changes_of_another_training_are_refused_and_change_nothing(work, capsys):
    work.train(12)
    work.export("--store", work.url)

    def refused(said, *flags, run="run"):
        capsys.readouterr()
        work.changes(*flags, run=run, refused=True)
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert said in error

    work.train(16, run="other")
    refused("another run, or resumed from before", run="other")
    shutil.copytree(work.folder / "run", work.folder / "back")
    shutil.rmtree(work.folder / "back" / "checkpoints" / "step-00000012")
    work.train(16, run="back")  # from step 8
    refused("another run, or resumed from before", run="back")
    shutil.copytree(work.folder / "run", work.folder / "early")
    shutil.rmtree(work.folder / "early" / "checkpoints" / "step-00000012")
    refused("at step 8, the last export at step 12", run="early")
    with work.stored() as (store, generation):
        assert cuts_of(store.records, generation) == []
        with lock_exports(store.records, "shop"):
            refused("export/shop is held by export-")
    refused("has not version 2 to change, there are 1", "--version", "2")
    refused("has not the rows of version 1", "--store", other_store(work))
    refused("--top with --incremental", "--top", "5")
    refused("--store_shards with --incremental", "--store_shards", "256")
    work.export("--wait_seconds", "5", refused=True)
    assert "--wait_seconds without --incremental" in capsys.readouterr().err
    work.export()
    refused("rows in its own directory, which is sealed; make a full export with a store")
    work.export("--standalone")
    refused("a standalone version cannot change")
    work.train(16)
    assert work.changes("--version", "1")["cut"]["step"] == 16
    work.check_rows()


def other_store(work):
    """Returns the URL of an empty store."""
    url = f"file://{work.folder}/elsewhere"
    open_store(url, create=True).close()
    return url


def test_changes_of_a_version_of_the_most_used_rows_are_refused(work, capsys):
    work.train(8)
    work.export("--store", work.url, "--top", "20")
    work.train(12)
    work.changes(refused=True)
    assert "only the 20 most frequent rows of each table" in capsys.readouterr().err


def test_a_checkpoint_of_an_older_hotrow_needs_one_full_export(work, capsys):
    work.train(4)  # one checkpoint: an increment would name the seal of the one below
    for checkpoint in (work.folder / "run" / "checkpoints").iterdir():
        manifest = read_sealed(checkpoint)
        del manifest["lineage"]
        (checkpoint / MANIFEST).write_text(json.dumps({**manifest, "seal": seal_of(manifest)}))
    work.export("--store", work.url)
    work.changes(refused=True)
    assert "does not say which training it shows" in capsys.readouterr().err
    work.train(12)
    work.changes(refused=True)
    assert "make a full export" in capsys.readouterr().err
    work.export("--store", work.url)
    work.train(16)
    assert work.changes()["version"] == 2


def test_an_export_that_was_killed_between_commit_and_folding_is_completed(work, monkeypatch):
    work.train(8)
    work.export("--store", work.url)
    work.train(12)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LmdbStore, "set_watermarks", killed)
        work.changes(refused=True)
    reported = work.changes()
    assert (reported["committed"], reported["waiting_for"]) == (False, [])
    work.check_rows()
