"""Gates of exports: values that are not finite and norms that jump are not published."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
from integration.small_run import CONFIG

import hotrow
from hotrow.cli.main import main
from hotrow.errors import InvalidArgumentError
from hotrow.manifest import read_manifest
from hotrow.norms import GateError, Gates, Measured
from hotrow.ops.export.gates import measured_table
from hotrow.store import open_store
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations


class Work:
    """A Keras model that this process trains and exports."""

    def __init__(self, folder, store):
        table = hotrow.TableConfig("items", 4, initializer=hotrow.Uniform(0.5))
        layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
        key = keras.Input((), dtype="int64", name="key")
        self.head = keras.layers.Dense(1)
        self.model = keras.Model({"key": key}, self.head(layer({"key": key})["key"]))
        self.model.compile("adam", "mse")
        self.table = layer.tables["items"]
        self.folder, self.store = folder, store
        self.fit()

    def fit(self, keys=64):
        self.model.fit({"key": np.arange(keys)}, np.ones(keys), batch_size=64, verbose=0)

    def set_weights_of(self, keys, value):
        """Writes one weight of rows past all checks, as a fault would."""
        found, _, lines, _, counts, _ = self.table._native.read_rows(np.array(keys, np.int64))
        assert found.all()
        self.table.line_layout.weights(lines)[:, 2] = value
        clocks = np.full(len(keys), self.table.step + 1, np.uint32)
        self.table._native.import_rows(np.array(keys, np.int64), lines, clocks, counts)

    def export(self, **options):
        return hotrow.export_model(self.model, self.folder, "m", store=self.store, **options)

    def changes(self, **options):
        return hotrow.export_changes(self.model, self.folder, "m", **options).outcome

    def control_records(self):
        """Returns all records of the store but numbers and leases, and the versions on disk."""
        with contextlib.closing(open_store(self.store, create=True)) as store:
            names = store.records.names("")
            kept = [n for n in names if n.startswith(("generation/", "cut/", "staging/"))]
        return kept, sorted(path.name for path in self.folder.glob("m/*"))


@pytest.fixture
def work(redis_server, tmp_path):
    return Work(tmp_path, redis_server.url)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_rows_that_are_not_finite_are_not_exported(work, kind, value):
    export = work.export
    if kind == "incremental":
        work.export()
        work.fit()
        export = work.changes
    before = work.control_records()
    work.set_weights_of([7, 9], value)
    with pytest.raises(
        GateError,
        match=r"table 'items': 2 of 64 rows to export are not finite \(NaN or an infinity\), the "
        r"first of them key \d; nothing was exported.*--step N.*--force",
    ):
        export()
    assert work.control_records() == before
    export(force=True)
    assert work.control_records() != before


def test_a_row_that_was_forced_out_does_not_stop_later_changes_of_others(work):
    work.export()
    work.set_weights_of([63], np.nan)
    for force in (True, False):
        work.fit(keys=32)
        assert work.changes(force=force).committed


@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("row", r"table 'items': the largest absolute value of its values is 30, in the export"),
        ("huge", r"table 'items': the root mean square of its values is 6.25e\+18, in the export"),
        ("rows", r"table 'items': the root mean square of its values is 50.*before 0\.\d+; it may"),
        ("dense", r"dense weight 0 \(.*kernel.*, \[4, 1\]\): the root mean square .* is 200"),
        ("shrunk", r"dense weight 0 .* is 0, in the export before 20; it may grow or shrink 10"),
    ],
)
def test_norms_that_jump_are_not_exported(work, kind, change, said):
    if change == "shrunk":
        work.head.kernel.assign(np.full((4, 1), 20.0))
    work.export()
    work.fit(keys=32)
    export = work.export if kind == "full" else work.changes
    if change in ("row", "huge"):
        work.set_weights_of([3], 30.0 if change == "row" else 1e20)
    elif change == "rows":
        work.set_weights_of(range(64), 100.0)
    else:
        work.head.kernel.assign(np.full((4, 1), 200.0 if change == "dense" else 0.0))
    before = work.control_records()
    with pytest.raises(GateError, match=said + r".*export\.max_norm_ratio.*--force"):
        export()
    assert work.control_records() == before
    export(force=True)
    assert work.control_records() != before


def test_dense_weights_that_are_not_finite_are_not_exported(work):
    work.export()
    before = work.control_records()
    work.head.bias.assign([np.nan])
    for export in (work.export, work.changes):
        with pytest.raises(GateError, match=r"dense weight 1 \(.*bias.*\): its values are not fin"):
            export()
    assert work.control_records() == before


def test_an_incremental_export_is_compared_with_the_one_before(work):
    directory = work.export()
    exported = read_manifest(directory / "assets" / "hotrow_manifest.json").norms
    assert [norm.name.split(" ")[0] for norm in exported] == ["dense", "dense", "table"]
    for factor in (5.0, 5.0, 5.0):  # 125 times the export, but never 10 times the cut before
        work.head.kernel.assign(work.head.kernel * factor + 1.0)
        assert work.changes().committed
    with contextlib.closing(open_store(work.store)) as store:
        (generation,) = Generations(store.records).all("m")
        assert cuts_of(store.records, generation)[-1].norms[0].rms > 10 * exported[0].rms
    work.export()  # it is compared with the newest cut, too


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_a_store_that_lost_the_export_before_is_compared_with_it_nevertheless(
    redis_servers, tmp_path, kind
):
    redis = redis_servers.standalone()
    work = Work(tmp_path, redis.url)
    work.export()
    before = redis.snapshot()
    for factor in (5.0, 5.0, 5.0):
        work.head.kernel.assign(work.head.kernel * factor + 1.0)
        work.changes()
    redis.go_back(before)
    export = work.export if kind == "full" else work.changes
    with pytest.raises(GateError, match=r"is 0, in the export before \d\d+"):
        work.head.kernel.assign(np.zeros((4, 1)))
        export()
    work.head.kernel.assign(np.full((4, 1), 130.0))
    assert export()


def test_norms_equal_those_of_numpy():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(1000, 6)).astype(np.float32)
    rows[3, 1] = -1e30  # its square is infinite in float32
    rows[10] = np.nan
    measured = Measured("t")
    for first in range(0, 1000, 300):
        piece = slice(first, first + 300)
        lines = np.zeros((len(rows[piece]), 8), np.float32)  # rows lie in lines, with their state
        lines[:, :6] = rows[piece]
        measured.add(np.arange(1000)[piece], lines[:, :6])
    finite = np.delete(rows, 10, axis=0).astype(np.float64)
    norm = measured.norm()
    np.testing.assert_allclose(norm.rms, np.sqrt((finite**2).mean()), rtol=1e-6)
    assert norm.largest == np.abs(finite).max()
    assert "1 of 1000 rows" in measured.problem()
    assert "key 10" in measured.problem()


def test_values_that_overflow_the_stored_type_are_not_finite():
    measured = measured_table("t", "float16")
    measured.add(np.array([4, 5]), np.array([[1.0, 2.0], [3.0, -7e4]], np.float32))
    assert "1 of 2 rows" in measured.problem()
    assert "above 65504" in measured.problem()
    assert "key 5" in measured.problem()


def test_a_ratio_of_one_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"--max_norm_ratio 1\.0: must be more than 1"):
        Gates(max_norm_ratio=1.0)


def test_the_command_takes_the_ratio_of_the_run_and_the_option(tmp_path, capsys):
    rows = ["--rows", "1000", "--valid-rows", "100", "--keys", "100"]
    assert main(["data", "generate", str(tmp_path / "train.tsv"), *rows]) == 0
    more = "checkpoint: {every_steps: 2}\nexport: {max_norm_ratio: 1.0001}\n"
    (tmp_path / "small.yaml").write_text(CONFIG + more)
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "small.yaml"), "--run-dir", str(run)]) == 0
    export = ["export", str(run), "--to", str(tmp_path / "models"), "--name", "m"]
    assert main([*export, "--step", "2"]) == 0
    assert main(export) == 1
    said = capsys.readouterr().err
    assert "may grow or shrink 1.0001 times (export.max_norm_ratio, --max_norm_ratio)" in said
    assert not (tmp_path / "models" / "m" / "2").exists()
    assert main([*export, "--max_norm_ratio", "100"]) == 0
    assert main([*export, "--step", "2"]) == 1
    assert main([*export, "--step", "2", "--force"]) == 0
