"""Exports: every kind of column gives the scores of training, in both kinds of export."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from hotrow.config import load_config
from hotrow.errors import AlreadyExistsError, InvalidArgumentError, UnavailableError
from hotrow.manifest import read_manifest
from hotrow.ops import library
from hotrow.ops.export import RowOptions
from hotrow.ops.export.signatures import argument_names
from hotrow.ops.lookup import SAMPLE_COUNTS
from hotrow.trainer.data import encode, open_data
from hotrow.trainer.export import export_version
from hotrow.trainer.export.raw_inputs import RawInputs
from hotrow.trainer.loop import train
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import load_run

CSV = """\
name: shop
seed: 3
data: {format: csv, train: rows.csv, valid: rows.csv, batch_size: 4, on_malformed: fail}
features:
  dense: [{columns: [price], transform: log}, {columns: [class, age-years, 1st], standardize: true}]
  sparse:
    - {columns: [city, home town], dim: 3, table: towns}
    - {columns: [tags], dim: 2, separator: "|", combiner: mean}
    - {columns: [item], dim: 4, hash: false}
    - {columns: [seen], dim: 2, hash: false, separator: ";", combiner: sum}
    - {columns: [stock], dim: 2, buckets: log}
tables: {default: {optimizer: adagrad, learning_rate: 0.3, initializer: {uniform: 0.5}}}
model: {arch: wide_deep, hidden: [8]}
optimizer: {name: adam, learning_rate: 0.05}
train: {epochs: 3}
"""

ROWS = """\
label,price,class,1st,age-years,city,home town,tags,item,stock,seen
1,10.5,2,0,30,Rome,Paris,red|big,17,0,1; 2
0,,3,1,41,Paris,,,-3,,
1,0,4,0,29,,Rome,red,9223372036854775807,5,-5 ;7;7
0,-2.5,5,1,,Oslo,Oslo,big||red|new,17,100000,;
1,7,6,0,55,Zürich,Paris,new,,-4,;3
0,1,7,1,18,Rome,Rome,big,0,2,9
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A model of a CSV file with every kind of column, trained and exported twice."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "rows.csv").write_text(ROWS)
    (folder / "shop.yaml").write_text(CSV)
    train(load_config(folder / "shop.yaml", []), run_dir=folder / "run")
    run = load_run(folder / "run")
    export_version(run.model, folder / "base", "shop", step=run.position.step)
    export_version(run.model, folder / "alone", "shop", step=run.position.step, standalone=True)
    raw = all_rows(folder / "rows.csv", run)
    return folder, run, raw


def all_rows(path, run):
    data = open_data(path, run.config.data, run.config.features)
    return next(iter(data.raw_batches(1000)))


def offline(run, raw):
    return tf.sigmoid(run.model(model_inputs(encode(raw, run.config.features)))).numpy()


def named(run, raw):
    inputs = {}
    for name, values in raw.columns.items():
        inputs[name] = tf.constant(values.tolist() if values.dtype == object else values)
    # Functions of a loaded SavedModel take identifiers; requests take the names themselves.
    columns = RawInputs(run.config).specs()
    return {argument_names(columns)[name]: value for name, value in inputs.items()}


def example(raw, row):
    features = {}
    for name, values in raw.columns.items():
        value = values[row]
        if isinstance(value, bytes):
            if value:
                features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif isinstance(value, np.integer):
            if value != -(2**63):
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
        elif not np.isnan(value):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[float(value)]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.mark.parametrize("kind", ["base", "alone"])
def test_every_kind_of_column_scores_as_in_training(shop, kind):
    folder, run, raw = shop
    library.load()
    loaded = tf.saved_model.load(str(folder / kind / "shop" / "1"))
    expected = offline(run, raw)
    assert expected.std() > 0.05
    scores = loaded.signatures["serving_default"](**named(run, raw))["scores"]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["base", "alone"])
def test_examples_with_absent_features_score_as_missing_values(shop, kind):
    folder, run, raw = shop
    library.load()
    loaded = tf.saved_model.load(str(folder / kind / "shop" / "1"))
    examples = tf.constant([example(raw, row) for row in range(raw.size)])
    expected = offline(run, raw)
    regressed = loaded.signatures["regress"](inputs=examples)["outputs"]
    np.testing.assert_allclose(regressed, expected, rtol=0, atol=1e-6)
    classified = loaded.signatures["classify"](inputs=examples)
    np.testing.assert_allclose(classified["scores"][:, 1], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(classified["scores"], axis=1), 1, atol=1e-6)
    assert classified["classes"].numpy().tolist() == [[b"0", b"1"]] * raw.size


def test_pooled_embeddings_of_the_export_equal_training_bit_for_bit(shop):
    folder, run, raw = shop
    library.load()
    loaded = tf.saved_model.load(str(folder / "base" / "shop" / "1"))
    pooled = loaded.signatures["embeddings"](**named(run, raw))
    for counted in SAMPLE_COUNTS:
        assert pooled.pop(counted).numpy().tolist() == [0] * raw.size
    inputs = model_inputs(encode(raw, run.config.features))
    expected = run.model.embed(inputs["sparse"], inputs["weights"])
    assert pooled.keys() == expected.keys()
    for name, rows in expected.items():
        assert rows.numpy().tobytes() == pooled[name].numpy().tobytes(), name


def test_the_manifest_shows_what_the_version_holds(shop):
    folder, run, _ = shop
    manifest = read_manifest(folder / "base" / "shop" / "1" / "assets" / "hotrow_manifest.json")
    assert (manifest.model, manifest.version, manifest.store) == ("shop", 1, "file:rows")
    for table in manifest.tables:
        trained = run.model.tables()[table.name]
        assert (table.rows, table.dim) == (trained.size, trained.dim)
        assert table.digest == trained.digest(weights_only=True)
    assert {f.name: f.combiner for f in manifest.features}["tags"] == "mean"


def test_signatures_have_the_methods_that_tensorflow_serving_expects(shop):
    folder, _, _ = shop
    from tensorflow.core.protobuf import saved_model_pb2

    for kind in ("base", "alone"):
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / kind / "shop" / "1" / "saved_model.pb").read_bytes())
        definitions = saved.meta_graphs[0].signature_def
        methods = {name: definitions[name].method_name.split("/")[-1] for name in definitions}
        assert methods["serving_default"] == "predict"
        assert methods["classify"] == "classify"
        assert methods["regress"] == "regress"
        # Names that are no Python identifiers reach the client as they are in the file.
        assert {"age-years", "home town"} <= set(definitions["serving_default"].inputs)


def test_a_version_directory_may_be_moved(shop, tmp_path):
    folder, run, raw = shop
    library.load()
    moved = tmp_path / "elsewhere" / "7"
    moved.parent.mkdir()
    subprocess.run(["cp", "-r", folder / "base" / "shop" / "1", moved], check=True)
    loaded = tf.saved_model.load(str(moved))
    scores = loaded.signatures["serving_default"](**named(run, raw))["scores"]
    np.testing.assert_allclose(scores, offline(run, raw), rtol=0, atol=1e-6)


def test_the_standalone_export_needs_no_hotrow(shop):
    folder, run, raw = shop
    program = (
        "import sys, json, tensorflow as tf\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "examples = [bytes.fromhex(e) for e in json.loads(sys.argv[2])]\n"
        "scores = loaded.signatures['regress'](inputs=tf.constant(examples))['outputs']\n"
        "assert not any(m.split('.')[0] == 'hotrow' for m in sys.modules)\n"
        "print(json.dumps(scores.numpy().tolist()))\n"
    )
    examples = json.dumps([example(raw, row).hex() for row in range(raw.size)])
    answer = subprocess.run(
        [sys.executable, "-c", program, str(folder / "alone" / "shop" / "1"), examples],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    )
    np.testing.assert_allclose(json.loads(answer.stdout), offline(run, raw), rtol=0, atol=1e-6)


def test_a_file_store_may_hold_several_versions(shop, tmp_path):
    _, run, raw = shop
    library.load()
    store = f"file://{tmp_path}/rows"
    for version in (1, 2):
        directory, _ = export_version(
            run.model, tmp_path, "shop", step=1, rows=RowOptions(store=store)
        )
        assert not (directory / "rows").exists()
        loaded = tf.saved_model.load(str(directory))
        scores = loaded.signatures["serving_default"](**named(run, raw))
        np.testing.assert_allclose(scores["scores"], offline(run, raw), rtol=0, atol=1e-6)
        assert directory.name == str(version)


def test_exports_that_cannot_be_are_refused_and_leave_nothing(shop, tmp_path):
    folder, run, _ = shop
    before = sorted(p.name for p in (folder / "base" / "shop").iterdir())
    with pytest.raises(AlreadyExistsError, match="leave --version out for 2"):
        export_version(run.model, folder / "base", "shop", step=1, version=1)
    with pytest.raises(InvalidArgumentError, match="must be 1 or more"):
        export_version(run.model, folder / "base", "shop", step=1, version=0)
    with pytest.raises(InvalidArgumentError, match="legal are letters, digits"):
        export_version(run.model, folder / "base", "a/b", step=1)
    for url in ("redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1"):
        with pytest.raises(UnavailableError, match=r"127.0.0.1:1: .*refused"):
            export_version(run.model, folder / "base", "shop", step=1, rows=RowOptions(store=url))
    with pytest.raises(InvalidArgumentError, match="legal: file:///DIR"):
        export_version(
            run.model, folder / "base", "shop", step=1, rows=RowOptions(store="/var/rows")
        )
    assert sorted(p.name for p in (folder / "base" / "shop").iterdir()) == before


LIBSVM = """\
name: frappe
data: {{format: libsvm, train: rows.libsvm, batch_size: 256, weights: {weights}}}
features: {{sparse: {{columns: [ids], dim: 4, hash: false, combiner: sqrtn}}}}
tables: {{default: {{optimizer: sgd, learning_rate: 0.5, initializer: {{normal: 0.3}}}}}}
model: {{arch: wide_deep, hidden: [8]}}
optimizer: {{name: adam, learning_rate: 0.01}}
"""


@pytest.mark.parametrize("weights", [True, False], ids=["weighted", "unweighted"])
def test_libsvm_rows_travel_as_flat_keys_and_row_splits(shared, tmp_path, weights):
    source = shared / "data" / "frappe_x1" / "test.libsvm.gz"
    with gzip.open(source, "rt") as file:
        lines = [next(file) for _ in range(500)]
    # Different weights and numbers of keys a row.
    lines = [line.replace(":1 ", f":{1 + i % 3} ", i % 4) for i, line in enumerate(lines)]
    lines[3] = "1 5:2\n"
    (tmp_path / "rows.libsvm").write_text("".join(lines))
    (tmp_path / "c.yaml").write_text(LIBSVM.format(weights=str(weights).lower()))
    train(load_config(tmp_path / "c.yaml", []), run_dir=tmp_path / "run")
    run = load_run(tmp_path / "run")
    library.load()
    raw = all_rows(tmp_path / "rows.libsvm", run)
    ids = raw.columns["ids"]
    inputs = {"ids": tf.constant(ids.values), "ids_row_splits": tf.constant(ids.row_splits)}
    if weights:
        inputs["ids_weights"] = tf.constant(ids.weights)
    expected = offline(run, raw)
    for standalone in (False, True):
        base = tmp_path / f"base{standalone}"
        directory, _ = export_version(run.model, base, "m", step=1, standalone=standalone)
        loaded = tf.saved_model.load(str(directory))
        scores = loaded.signatures["serving_default"](**inputs)["scores"]
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


def test_a_keras_saved_model_finds_its_tables_in_the_process_and_says_so_elsewhere(tmp_path):
    import keras

    import hotrow

    embedding = hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig("f", hotrow.TableConfig("t", 2, combiner="sum"))]
    )

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = embedding

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def rows(self, keys):
            return self.embedding({"f": keys})["f"]

        def call(self, keys, training=False):
            return self.embedding({"f": keys}, training=training)["f"]

    model = Model()
    keys = np.array([1, 2], np.int64)
    expected = model(keys, training=True)
    tf.saved_model.save(model, str(tmp_path / "saved"), signatures={"rows": model.rows})
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.rows(keys), expected)
    assert embedding.tables["t"].size == 2
    program = (
        "import sys, tensorflow as tf\n"
        "from hotrow.ops import library; library.load()\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "try:\n"
        "    loaded.rows(tf.constant([1], tf.int64))\n"
        "except tf.errors.NotFoundError as err:\n"
        "    print(err.message)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "saved")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "hotrow.export_model" in answer.stdout


def test_no_export_leaves_files_behind(shop):
    folder, _, _ = shop
    assert not list(Path(folder).rglob(".unfinished-*"))
