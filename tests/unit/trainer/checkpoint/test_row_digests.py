"""Digests of rows: what a checkpoint has of them, and that rows which differ are found by name."""

from __future__ import annotations

import json
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from unit.trainer.checkpoint.trained import Trained, config_of, silent

import hotrow
from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError
from hotrow.hashed_file import FileFacts
from hotrow.ops.ranks import LONE, thread_ranks
from hotrow.ops.table import Table
from hotrow.sealed_directory import read_manifest, seal_of
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.array_file import read_arrays, write_arrays
from hotrow.trainer.checkpoint.line_columns import cut_columns
from hotrow.trainer.checkpoint.row_digests import NOTHING, digest_of
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.checkpoint.stored import open_chain
from hotrow.trainer.checkpoint.table_check import check_rows
from hotrow.trainer.checkpoint.table_files import Rows
from hotrow.trainer.checkpoint.table_restore import restore_table
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.metrics import BinaryMetrics

DIM = 5
FIRST, SECOND, GONE = np.arange(100), np.arange(60, 130), np.arange(10, 20)


def config(sharding):
    owner = 1 if sharding == "table" else None
    return hotrow.TableConfig(
        "t", DIM, optimizer=hotrow.Adagrad(0.1), sharding=sharding, owner=owner
    )


def rows_of(keys, seed):
    """Returns whole rows of a table of `config`."""
    random = np.random.default_rng(seed)
    lines = random.normal(size=(len(keys), 2 * DIM)).astype(np.float32).view(np.uint8)
    clocks = random.integers(1, 50, len(keys)).astype(np.uint32)
    return Rows(keys, lines, clocks, clocks + 1, np.zeros(len(keys), np.uint32))


def put(table, rows):
    """Gives a rank's table its part of whole rows."""
    own = table.owns(rows.keys)
    layout = Table(config("row"), 0).line_layout
    lines = cut_columns(rows.lines[own], layout, table.columns)
    table.import_rows(rows.keys[own], lines, rows.clocks[own], rows.counts[own])


def on_ranks(count, work):
    """Runs work(rank) on ranks that are threads; raises what the first of them raised."""
    if count == 1:
        work(LONE)
        return
    errors = [None] * count

    def run(rank):
        try:
            with rank:
                work(rank)
        except BaseException as err:
            errors[rank.rank] = err

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(count, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error


def write(folder, ranks, sharding):
    """Writes a full checkpoint and an increment of one table; returns the second."""

    def work(rank):
        table = Table(config(sharding), 3, ranks=rank)
        model = SimpleNamespace(tables=lambda: {"t": table}, dense_variables=list)
        checkpoint = CheckpointConfig(full_every=2, keep=2, asynchronous=False)
        directory = CheckpointDirectory(folder, 2)
        optimizer = SimpleNamespace(variables=[])
        writer = CheckpointWriter(directory, checkpoint, model, optimizer, silent, rank)
        put(table, rows_of(FIRST, 1))
        writer.finish(Position(1), BinaryMetrics().state)
        put(table, rows_of(SECOND, 2))
        table.remove_rows(GONE)
        writer.finish(Position(2), BinaryMetrics().state)

    on_ranks(ranks, work)
    return folder / "step-00000002"


def restore(path, ranks, sharding):
    """Restores the table on ranks and checks it; returns the digest of one process's table."""
    chain = open_chain(path)
    digests = []

    def work(rank):
        table = Table(config(sharding), 3, ranks=rank)
        restore_table(table, chain, silent, rank)
        check_rows(chain, {"t": table}, rank)
        digests.append(table.digest())

    on_ranks(ranks, work)
    return digests[0]


def change_a_bit(path, file):
    """Changes a bit of a row that stays, behind good checksums and seals."""
    place = path / "tables" / file
    arrays = {name: array.copy() for name, array in read_arrays(place).items()}
    stays = np.isin(arrays["keys"], [*range(20, 60), *range(100, 130)])
    arrays["lines"][np.flatnonzero(stays)[0], 1] ^= 1
    place.unlink()
    facts: FileFacts = write_arrays(place, arrays)
    seal_again(path, lambda manifest: manifest["files"].update({f"tables/{file}": facts}))
    newest = path.with_name("step-00000002")
    if newest != path:
        seals = [seal_of(read_manifest(path))]
        seal_again(newest, lambda manifest: manifest.update(parent_seals=seals))


def seal_again(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["seal"]
    change(manifest)
    (path / "manifest.json").write_text(json.dumps({**manifest, "seal": seal_of(manifest)}))


def whole_digest():
    """Returns the digest of the rows that `write` leaves in a table."""
    table = Table(config("row"), 3)
    put(table, rows_of(FIRST, 1))
    put(table, rows_of(SECOND, 2))
    table.remove_rows(GONE)
    return table.digest()


RESTORING = [(1, "row"), (3, "column"), (2, "column"), (2, "row"), (2, "replicated"), (3, "table")]
WRITING = [(1, "row"), (2, "row"), (3, "column")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Returns the checkpoints of `write`, by ranks and sharding; `copy` one to change it."""
    folder = tmp_path_factory.mktemp("written")
    return {case: write(folder / f"{case[0]}", *case) for case in WRITING}


def copy(path, folder):
    shutil.copytree(path.parent, folder, dirs_exist_ok=True)
    return folder / path.name


@pytest.mark.parametrize(("before", "splitting"), WRITING)
@pytest.mark.parametrize(("after", "sharding"), RESTORING)
def test_rows_are_those_of_their_digests_on_any_ranks(
    written, tmp_path, before, splitting, after, sharding
):
    path = copy(written[before, splitting], tmp_path)
    entry = read_manifest(path)["tables"]["t"]
    if splitting == "column":
        assert entry["digest"] is None
        digests = [part["digest"] for part in entry["parts"]]
        assert None not in digests
        assert len(set(digests)) == 3
    else:
        assert entry["digest"] == whole_digest()
    found = restore(path, after, sharding)
    if (after, sharding) in [(1, "row"), (2, "replicated")]:
        assert found == whole_digest()
    assert sum(len(rows.keys) for rows in CheckpointRows(path).read("t", lambda _: None)) == 120


@pytest.mark.parametrize(
    ("before", "splitting", "file", "name"),
    [
        (1, "row", "t-00000", "the rows of table 't'"),
        (2, "row", "t@1-00000", "the rows of table 't'"),
        (3, "column", "t@0-00000", r"columns 0 to 1 of table 't' \(rank 0\)"),
        (3, "column", "t@1-00000", r"columns 2 to 3 of table 't' \(rank 1\)"),
    ],
)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("after", "sharding"), RESTORING)
def test_a_changed_bit_behind_good_checksums_is_found_by_name(
    written, tmp_path, before, splitting, file, name, step, after, sharding
):
    path = copy(written[before, splitting], tmp_path)
    change_a_bit(path.with_name(f"step-{step:08d}"), f"{file}.safetensors")
    with pytest.raises(DataLossError, match=f"{name} are not those that were written"):
        restore(path, after, sharding)
    with pytest.raises(DataLossError, match=f"{name} are not those that were written"):
        list(CheckpointRows(path).read("t", lambda _: None))


def test_a_damaged_file_of_a_column_part_is_found_by_its_name(written, tmp_path):
    path = copy(written[3, "column"], tmp_path)
    place = path / "tables" / "t@2-00000.safetensors"
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    with pytest.raises(DataLossError, match="t@2-00000"):
        open_chain(path)


def test_the_digest_of_arrays_is_that_of_a_table_with_these_rows():
    table = Table(config("row"), 3)
    assert table.digest() == NOTHING
    rows = rows_of(FIRST, 4)
    assert digest_of(Rows(**{name: array[:0] for name, array in vars(rows).items()})) == NOTHING
    put(table, rows)
    assert digest_of(rows) == table.digest()


@pytest.mark.parametrize("full_every", [1, 5])
def test_digests_are_summed_in_the_writing_thread_while_training_changes_the_rows(
    tmp_path, monkeypatch, full_every
):
    """The training thread takes no digest; each is that of the checkpoint's step nevertheless."""
    checkpoint = {"asynchronous": True, "full_every": full_every, "keep": 9}
    trained = Trained(tmp_path, config_of(checkpoint=checkpoint))
    digests = {}
    for step in range(1, 6):
        trained.train(3 * step, 3 * step + 3)
        digests[step] = {name: table.digest() for name, table in trained.model.tables().items()}
        with monkeypatch.context() as patch:
            patch.setattr(Table, "digest", lambda table: pytest.fail("a digest in training"))
            trained.writer.begin(Position(step), trained.metrics.state)
            trained.train(100 * step, 100 * step + 20)
            trained.writer.close()
        [outcome] = trained.writer.outcomes()
        assert outcome.kind == ("full" if step == 1 or full_every == 1 else "increment")
        entries = read_manifest(trained.directory.of_step(step))["tables"]
        assert {name: entry["digest"] for name, entry in entries.items()} == digests[step]


@pytest.mark.parametrize("last", [False, True])
def test_an_increment_of_a_table_on_disk_has_a_digest_at_the_end_of_a_run(tmp_path, last):
    table = Table(
        hotrow.TableConfig(
            "t", DIM, optimizer=hotrow.Adagrad(0.1), cache=hotrow.Cache(8, disk=str(tmp_path))
        ),
        3,
    )
    model = SimpleNamespace(tables=lambda: {"t": table}, dense_variables=list)
    checkpoint = CheckpointConfig(full_every=3, keep=3, asynchronous=False)
    directory = CheckpointDirectory(tmp_path / "checkpoints", 3)
    optimizer = SimpleNamespace(variables=[])
    writer = CheckpointWriter(directory, checkpoint, model, optimizer, silent)
    state = BinaryMetrics().state
    found = []
    for step in (1, 2):
        keys = np.arange(40 * step)
        table.lookup(keys, insert=True)
        table.update(keys, np.ones((len(keys), DIM), np.float32))
        (writer.finish if last else writer.begin)(Position(step), state)
        found.append(read_manifest(directory.of_step(step))["tables"]["t"]["digest"])
        assert found[-1] in (None, table.digest())
    assert (found[0] is not None, found[1] is not None) == (True, last)
    table.clear()
    directory.restore_newest(model, optimizer, silent)
    assert table.size == 80
